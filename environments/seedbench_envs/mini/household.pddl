; The household domain of the generated games.
;
; Action and predicate names, parameters and their order are ALFWorld's interface: the engines and the text
; grammar refer to them. Every condition is stated here, so that nothing rests on a planner's habits:
; an object is examined only while it is held, and a move always changes the location.

(define (domain household)
  (:requirements :adl :typing)

  (:types agent location receptacle object rtype otype)

  (:constants
    SinkType SinkBasinType MicrowaveType FridgeType - rtype
    KnifeType ButterKnifeType - otype)

  (:predicates
    ; where things are
    (atLocation ?a - agent ?l - location)
    (receptacleAtLocation ?r - receptacle ?l - location)
    (objectAtLocation ?o - object ?l - location)
    (inReceptacle ?o - object ?r - receptacle)
    (inReceptacleObject ?inner - object ?outer - object)
    (holds ?a - agent ?o - object)
    (holdsAny ?a - agent)
    ; what they are
    (receptacleType ?r - receptacle ?t - rtype)
    (objectType ?o - object ?t - otype)
    (canContain ?rt - rtype ?ot - otype)
    (isReceptacleObject ?o - object)
    (openable ?r - receptacle)
    (pickupable ?o - object)
    (toggleable ?o - object)
    (cleanable ?o - object)
    (heatable ?o - object)
    (coolable ?o - object)
    (sliceable ?o - object)
    ; what has been done to them
    (opened ?r - receptacle)
    (isClean ?o - object)
    (isHot ?o - object)
    (isCool ?o - object)
    (isOn ?o - object)
    (isToggled ?o - object)
    (isSliced ?o - object)
    ; effects of actions that only report something; no condition reads them
    (lookedAround ?l - location)
    (listedBelongings ?a - agent)
    (readHelp ?a - agent)
    (inspectedReceptacle ?r - receptacle)
    (inspectedObject ?o - object))

  ; --- reporting ---

  (:action look
    :parameters (?a - agent ?l - location)
    :precondition (atLocation ?a ?l)
    :effect (lookedAround ?l))

  (:action inventory
    :parameters (?a - agent)
    :precondition ()
    :effect (listedBelongings ?a))

  (:action help
    :parameters (?a - agent)
    :precondition ()
    :effect (readHelp ?a))

  (:action examineReceptacle
    :parameters (?a - agent ?r - receptacle)
    :precondition (exists (?l - location)
      (and (atLocation ?a ?l) (receptacleAtLocation ?r ?l)))
    :effect (inspectedReceptacle ?r))

  (:action examineObject
    :parameters (?a - agent ?o - object)
    :precondition (holds ?a ?o)
    :effect (inspectedObject ?o))

  ; --- moving about, opening and closing ---

  (:action GotoLocation
    :parameters (?a - agent ?lStart - location ?lEnd - location ?r - receptacle)
    :precondition (and
      (atLocation ?a ?lStart)
      (receptacleAtLocation ?r ?lEnd)
      (not (= ?lStart ?lEnd)))
    :effect (and
      (atLocation ?a ?lEnd)
      (not (atLocation ?a ?lStart))))

  (:action OpenObject
    :parameters (?a - agent ?l - location ?r - receptacle)
    :precondition (and
      (atLocation ?a ?l)
      (receptacleAtLocation ?r ?l)
      (openable ?r)
      (not (opened ?r)))
    :effect (opened ?r))

  (:action CloseObject
    :parameters (?a - agent ?l - location ?r - receptacle)
    :precondition (and
      (atLocation ?a ?l)
      (receptacleAtLocation ?r ?l)
      (openable ?r)
      (opened ?r))
    :effect (not (opened ?r)))

  ; --- taking and putting: one thing at a time, and never through a closed door ---

  (:action PickupObject
    :parameters (?a - agent ?l - location ?o - object ?r - receptacle)
    :precondition (and
      (atLocation ?a ?l)
      (receptacleAtLocation ?r ?l)
      (inReceptacle ?o ?r)
      (pickupable ?o)
      (not (holdsAny ?a))
      (or (opened ?r) (not (openable ?r))))
    :effect (and
      (holds ?a ?o)
      (holdsAny ?a)
      (not (inReceptacle ?o ?r))
      (not (objectAtLocation ?o ?l))))

  (:action PutObject
    :parameters (?a - agent ?l - location ?o - object ?r - receptacle ?ot - otype ?rt - rtype)
    :precondition (and
      (holds ?a ?o)
      (atLocation ?a ?l)
      (receptacleAtLocation ?r ?l)
      (objectType ?o ?ot)
      (receptacleType ?r ?rt)
      (canContain ?rt ?ot)
      (or (opened ?r) (not (openable ?r))))
    :effect (and
      (inReceptacle ?o ?r)
      (objectAtLocation ?o ?l)
      (not (holds ?a ?o))
      (not (holdsAny ?a))))

  ; --- changing things; appliances work with their doors closed ---

  (:action CleanObject
    :parameters (?a - agent ?l - location ?r - receptacle ?o - object)
    :precondition (and
      (holds ?a ?o)
      (cleanable ?o)
      (atLocation ?a ?l)
      (receptacleAtLocation ?r ?l)
      (or (receptacleType ?r SinkBasinType) (receptacleType ?r SinkType)))
    :effect (isClean ?o))

  (:action HeatObject
    :parameters (?a - agent ?l - location ?r - receptacle ?o - object)
    :precondition (and
      (holds ?a ?o)
      (heatable ?o)
      (atLocation ?a ?l)
      (receptacleAtLocation ?r ?l)
      (receptacleType ?r MicrowaveType))
    :effect (and
      (isHot ?o)
      (not (isCool ?o))))

  (:action CoolObject
    :parameters (?a - agent ?l - location ?r - receptacle ?o - object)
    :precondition (and
      (holds ?a ?o)
      (coolable ?o)
      (atLocation ?a ?l)
      (receptacleAtLocation ?r ?l)
      (receptacleType ?r FridgeType))
    :effect (and
      (isCool ?o)
      (not (isHot ?o))))

  (:action ToggleObject
    :parameters (?a - agent ?l - location ?o - object ?r - receptacle)
    :precondition (and
      (atLocation ?a ?l)
      (receptacleAtLocation ?r ?l)
      (inReceptacle ?o ?r)
      (toggleable ?o))
    :effect (and
      (isToggled ?o)
      (when (not (isOn ?o)) (isOn ?o))
      (when (isOn ?o) (not (isOn ?o)))))

  (:action SliceObject
    :parameters (?a - agent ?l - location ?co - object ?ko - object)
    :precondition (and
      (holds ?a ?ko)
      (or (objectType ?ko KnifeType) (objectType ?ko ButterKnifeType))
      (atLocation ?a ?l)
      (objectAtLocation ?co ?l)
      (sliceable ?co))
    :effect (isSliced ?co)))
