"""The text grammar: every construct on a small state with texts worked out by hand, and every refusal.

The constructs were checked against `textworld.envs.pddl.textgen` of TextWorld 1.7.0.
"""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbench_envs.alfworld.engine import Engine
from seedbench_envs.alfworld.game import GameError, parse_game
from seedbench_envs.alfworld.wording import Grammar, GrammarError, split_task
from tests.envs.tiny_game import GRAMMAR, kitchen

LISTS = {
    "list_empty": [{"rhs": "nothing"}],
    "list_separator": [{"rhs": ", "}],
    "list_last_separator": [{"rhs": ", and "}],
}
PARAMETERS = (("a", "agent"), ("l", "location"), ("r", "receptacle"), ("o", "object"))


@pytest.fixture(scope="module")
def engine() -> Engine:
    """At the counter: apple 3 was moved from the counter to the shelf, the knife is in hand, apple 1 stayed."""
    engine = Engine(parse_game(kitchen().file("(opened Fridge_bar_1)")))
    for command in ("go to countertop 1", "take apple 3 from countertop 1", "move apple 3 to shelf 1",
                    "take knife 1 from countertop 1"):  # fmt: skip
        assert engine.is_admissible(command)
        engine.step(command)
    return engine


def document(rules: dict[str, Any], feedback: str = "#start#", template: str = "act") -> str:
    return (
        f'grammar :: """{json.dumps({"intro": [{"rhs": ""}], **LISTS, **rules})}""";\n\n'
        f'action Act {{\n  template :: "{template}";\n  feedback :: "{feedback}";\n}}\n'
    )


def compiled(rules: dict[str, Any]) -> Grammar:
    return Grammar(document(rules), {"act": PARAMETERS})


def text(engine: Engine, rhs: str, **symbols: Any) -> str:
    """The text of a production with a = agent, l = the counter's location, r = the counter, o = apple 3."""
    numbers = {name: index for index, name in enumerate(engine.game.names)}
    binding = {
        "a": engine.game.agent,
        "l": engine.state.location,
        "r": numbers["countertop 1"],
        "o": numbers["apple 3"],
    }
    rules = {name: value if isinstance(value, list) else [{"rhs": value}] for name, value in symbols.items()}
    return compiled({"start": [{"rhs": rhs}], **rules}).feedback["act"](engine.state, binding)


# ---- constructs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rhs", "expected"),
    [
        ("", ""),
        ("plain words, with (brackets) and: signs!", "plain words, with (brackets) and: signs!"),
        ("{r}", "countertop 1"),
        ("{r.name}", "countertop 1"),
        ("{ r.name }.", "countertop 1."),
        ("{r.id}", "countertop_bar_1"),
        ("{o.indefinite} {o.name}", "a apple 3"),
        ("{o.definite + ' ' + o.name}", "the apple 3"),
        ('{o.definite + " " + o.name}', "the apple 3"),
        ("{'a' + 'b'}{o.name}", "abapple 3"),
        ("{r.name or r.id}", "countertop 1"),
        ("{'' or r.id}", "countertop_bar_1"),
        ("{'' or ''}x", "x"),
        ("{o.name + ', ' + r.name or r.id}", "apple 3, countertop 1"),
    ],
)
def test_words_and_expressions(engine: Engine, rhs: str, expected: str) -> None:
    assert text(engine, rhs) == expected


@pytest.mark.parametrize(
    ("rhs", "expected"),
    [
        # Counter: apple 1 only. Every receptacle here: countertop 1 is r itself, so r2 is one of the others.
        ("[{o2.name | inreceptacle(o2:object, r:receptacle)}]", "apple 1"),
        ("[{o2.indefinite + ' ' + o2.name | inreceptacle(o2:object, r:receptacle)}]!", "a apple 1!"),
        ("[{r2.name | receptacleatlocation(r2:receptacle, l:location)}]", "shelf 1, and sinkbasin 1"),
        (
            "[{r2.name | openable(r2:receptacle)}]",
            "cabinet 2, cabinet 1, fridge 1, and microwave 1",
        ),
        # A variable that is bound already only asks: a list of one, or of none.
        ("[{r.name | receptacleatlocation(r:receptacle, l:location)}]", "countertop 1"),
        ("[{o.name | inreceptacle(o:object, r:receptacle)}]", "nothing"),
        ("[{r.name}]", "countertop 1"),
        # Without brackets the answers are written one after the other.
        ("{r2.name | receptacleatlocation(r2:receptacle, l:location)}", "shelf 1sinkbasin 1"),
        ("{r.name | openable(r:receptacle)}.", "."),
        # Spaces around the bar and inside the condition do not matter.
        ("[{r2.name|receptacleatlocation( r2 : receptacle ,l:location )}]", "shelf 1, and sinkbasin 1"),
        # Conditions are joined from left to right, in sorted order of each.
        (
            "[{o2.name + '/' + r2.name | receptacleatlocation(r2:receptacle, l:location)"
            " & inreceptacle(o2:object, r2:receptacle)}]",
            "nothing",
        ),
        (
            "[{o2.name + '/' + r2.name | pickupable(o2:object) & inreceptacle(o2:object, r2:receptacle)}]",
            "apple 2/fridge 1, book 1/sidetable 1, and mug 1/cabinet 2",
        ),
        # apple 1 lies on r, which r2 cannot be; apple 3 is o, which o2 cannot be.
        ("[{o2.name | pickupable(o2:object)}]", "apple 2, apple 1, book 1, knife 1, and mug 1"),
        ("[{x.name | holds(a:agent, x:object)}]", "knife 1"),
        ("[{where.id | atlocation(a:agent, where:location)}]", "nothing"),  # it is l, which is bound to it
        # A negation is a fact only after a deletion.
        ("[{o.name | not_inreceptacle(o:object, r:receptacle)}]", "apple 3"),
        ("[{r2.name | not_inreceptacle(o:object, r2:receptacle)}]", "nothing"),
        ("[{x.name | not_inreceptacle(x:object, r:receptacle)}]", "knife 1"),
        ("[{x.name | not_istoggled(x:object)}]", "nothing"),
    ],
)
def test_lists_and_conditions(engine: Engine, rhs: str, expected: str) -> None:
    assert text(engine, rhs) == expected


def test_list_words_come_from_the_grammar(engine: Engine) -> None:
    words = {"list_empty": "none", "list_separator": "; ", "list_last_separator": " or "}
    rhs = "[{r2.name | openable(r2:receptacle)}] [{o.name | holds(a:agent, o:object)}]"
    # A separator ends at the first character that cannot be parsed, here at once; its own leading space is dropped.
    assert text(engine, rhs, **words) == "cabinet 2cabinet 1fridge 1or microwave 1 none"


def test_symbols_see_the_variables_of_where_they_stand(engine: Engine) -> None:
    assert text(engine, "#a# and #b(r)#.", a="{o.name}", **{"b(r)": "{r.name}"}) == "apple 3 and countertop 1."
    nested = {"thing(x)": "a #name(x)#", "name(x)": "{x.name}"}
    rhs = "[{#thing(x)# | pickupable(x:object) & inreceptacle(x:object, r:receptacle)}]"
    assert text(engine, rhs, **nested) == "a apple 1"


def test_the_first_production_that_applies_is_used(engine: Engine) -> None:
    def rules(*conditions: str) -> list[dict[str, str]]:
        return [{"condition": c, "rhs": str(n)} if c else {"rhs": str(n)} for n, c in enumerate(conditions)]

    closed, sliceable = "openable(r:receptacle)", "sliceable(o:object)"
    held, other = "holds(a:agent, x:object)", "inreceptacle(o:object, r2:receptacle)"
    assert text(engine, "#s#", s=rules("", sliceable)) == "0"
    assert text(engine, "#s#", s=rules(closed, sliceable, "")) == "1"
    assert text(engine, "#s#", s=rules(f"{sliceable} & {closed}", held, "")) == "1"
    assert text(engine, "#s#", s=rules("isclean(o:object)", closed, other, "")) == "2"
    assert text(engine, "#s#", s=rules(closed, "ishot(o:object)", "")) == "2"


def test_what_a_condition_found_is_not_bound_in_the_text(engine: Engine) -> None:
    found = [{"condition": "holds(a:agent, x:object)", "rhs": "{x.name}"}, {"rhs": ""}]
    with pytest.raises(GrammarError, match=r"cannot evaluate the expression 'x\.name'"):
        text(engine, "#s#", s=found)


@pytest.mark.parametrize(
    ("rhs", "expected"),
    [
        ("  indented", "indented"),
        ("\n\n  line\n  line ", "line\n  line "),
        ("\t{r.name}\tx", "countertop 1x"),
        ("a\tb", "a\tb"),
        ("{r.name} \n x", "countertop 1 \n x"),
        ("// a comment\nwords", "words"),
        ("http://x", "http://x"),
        ('"quoted words" follow', "quoted words follow"),
        ('say "hello', "say "),
        ("up to here; not this {r.name}", "up to here"),
        ("one|two", "one"),
        ("{r.name}} rest", "countertop 1"),
        ("a ] b", "a "),
        ("1 < 2", "1 "),
        ("#1 of all", ""),
        (r"a\nb", r"a\nb"),  # an escaped backslash is no line break
    ],
)
def test_what_is_dropped(engine: Engine, rhs: str, expected: str) -> None:
    assert text(engine, rhs) == expected


def test_names_that_the_condition_shadows_keep_their_values(engine: Engine) -> None:
    """A variable found for one answer does not leak into the next one or into the text around it."""
    rhs = "[{o2.name + '@' + r2.name | openable(r2:receptacle) & inreceptacle(o2:object, r2:receptacle)}] {o.name}"
    assert text(engine, rhs) == "mug 1@cabinet 2, and apple 2@fridge 1 apple 3"
    inner = {"in(c)": "{c.name}: [{x.name | inreceptacle(x:object, c:receptacle)}]"}
    rhs = "[{#in(c)# | receptacleatlocation(c:receptacle, l:location)}]; "
    assert text(engine, rhs, **inner) == "shelf 1: nothing, and sinkbasin 1: nothing"


# ---- refusals at load time --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rhs", "reason"),
    [
        ("[{o2.name | isshiny(o2:object)}]", "unknown predicate 'isshiny'"),
        ("[{o2.name | IsClean(o2:object)}]", "unknown predicate 'IsClean'"),
        ("[{o2.name | not_opened(r:receptacle)}]", "unknown predicate 'not_opened'"),
        ("[{r.name | openable(r:receptacle, l:location)}]", "'openable' takes 1 arguments"),
        ("[{r.name | inreceptacle(r:receptacle)}]", "'inreceptacle' takes 2 arguments"),
        ("[{r.name | holdsany()}]", "'holdsany' takes 1 arguments"),
        ("[{x.name | inreceptacleobject(x:object, x:object)}]", "stands twice in one literal"),
        ("[{x.name | openable(x)}]", "the variable 'x' has a wrong type"),
        ("[{x.name | openable(x:recptacle)}]", "the variable 'x' has a wrong type"),
        ("[{r.name | openable(r:object)}]", "the variable 'r' has a wrong type"),
        ("[{r.name | openable r}]", "cannot read the condition"),
        ("[{r.name | openable(r:receptacle) or opened(r:receptacle)}]", "cannot read the condition"),
        ("[{r.name | openable(r:receptacle) & }]", "cannot read the condition"),
        ("#missing#", "no symbol '#missing#'"),
        ("[{#missing(o)# | pickupable(o:object)}]", "no symbol '#missing(o)#'"),
        ("{q.name}", "cannot evaluate the expression 'q.name'"),
        ("{r.colour}", "cannot evaluate the expression 'r.colour'"),
        ("{r.name.upper()}", "cannot evaluate the expression"),
        ("{__import__('os').system('true')}", "cannot evaluate the expression"),
        ("{r.name * 3}", "cannot evaluate the expression"),
        ("{1}", "cannot evaluate the expression '1'"),
        ("{r.name and o.name}", "cannot evaluate the expression"),
        ("{r name}", "cannot read the expression 'r name'"),
        ("{r.name", "cannot read the expression in"),
        ("{}", "cannot read the expression in"),
        ("[{r.name}", "cannot read the list in"),
        ("[r.name]", "cannot read the list in"),
        ("#start#", "'#start#' stands in its own productions"),
        ("[{#start# | pickupable(o:object)}]", "'#start#' stands in its own productions"),
    ],
)
def test_what_cannot_be_played_is_refused_when_the_grammar_is_compiled(rhs: str, reason: str) -> None:
    with pytest.raises(GrammarError) as caught:
        compiled({"start": [{"rhs": rhs}]})
    assert reason in str(caught.value)


def test_symbols_that_call_each_other_are_refused() -> None:
    rules = {"start": [{"rhs": "#b#"}], "b": [{"condition": "openable(r:receptacle)", "rhs": "x"}, {"rhs": "#start#"}]}
    with pytest.raises(GrammarError, match="'#start#' stands in its own productions"):
        compiled(rules)


def test_a_symbol_without_a_last_resort_is_refused() -> None:
    with pytest.raises(GrammarError, match="every production of '#start#' has a condition"):
        compiled({"start": [{"condition": "openable(r:receptacle)", "rhs": "x"}]})


@pytest.mark.parametrize("missing", sorted(LISTS))
def test_lists_need_their_words(missing: str) -> None:
    with pytest.raises(GrammarError, match=f"no symbol '#{missing}#'"):
        compiled({"start": [{"rhs": "[{r.name}]"}], missing: []})


def test_symbols_that_nothing_uses_may_hold_anything() -> None:
    grammar = compiled({"start": [{"rhs": "fine"}], "unused": [{"rhs": "{q.colour}"}, {"rhs": "[", "condition": "?"}]})
    assert set(grammar.feedback) == {"act"}


@pytest.mark.parametrize("block", ['{"a": ', "3", "[1]", '{"a": 3}', '{"a": [3]}', '{"a": [{"rhs": 3}]}',
                                   '{"a": [{"condition": "x"}]}', '{"a": [{"rhs": "x", "condition": 1}]}'])  # fmt: skip
def test_blocks_of_another_shape_are_refused(block: str) -> None:
    for action in ('action act { template :: "act"; feedback :: "x"; }', "action act { }"):
        with pytest.raises(GrammarError, match=r"not a JSON object|no right-hand side"):
            Grammar(f'grammar :: """{block}""";\n{action}', {"act": ()})


def test_a_document_that_cannot_be_read_is_refused_where_it_breaks() -> None:
    good = document({"start": [{"rhs": "x"}]})
    with pytest.raises(GrammarError, match="cannot read the grammar at 'nonsense here'"):
        Grammar(f"{good}\nnonsense here", {"act": PARAMETERS})
    with pytest.raises(GrammarError, match="cannot read the grammar at 'templates"):
        Grammar(good.replace("template ::", "templates ::"), {"act": PARAMETERS})
    with pytest.raises(GrammarError, match="the grammar has no action 'dance'"):
        Grammar(good, {"act": PARAMETERS, "dance": ()})


def test_comments_stand_between_parts_and_inside_blocks(engine: Engine) -> None:
    block = '"""\n{\n  # a comment\n "intro": [{"rhs": "hello"}]}\n"""'
    grammar = Grammar(
        f'# first\ngrammar :: {block};\n# last\naction Act {{ template :: "act"; feedback :: "x"; }}', {"act": ()}
    )
    assert grammar.intro(engine.state, {}) == "hello"


def test_a_later_block_replaces_the_symbol(engine: Engine) -> None:
    later = 'action Other { template :: "o"; feedback :: "o"; grammar :: """{"start": [{"rhs": "late"}]}"""; }'
    grammar = Grammar(document({"start": [{"rhs": "early"}]}) + later, {"act": ()})
    assert grammar.feedback["act"](engine.state, {}) == "late"


# ---- the task sentence ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("Your task is to: look.", "Your task is to: look."),
        ("  Your task is to: look. ", "Your task is to: look. "),
        ('put "the mug" down', "put the mug down"),
        ("put a mug; then rest", "put a mug"),
        ("put mug #2 down", "put mug "),
        ("it's caf\u00e9 \\ time\n", "it's caf\u00e9 \\ time\n"),
        ("", ""),
    ],
)
def test_the_task_sentence_is_cut_out(sentence: str, expected: str) -> None:
    grammar = f'{{"a": 1, "task": [ {{ "rhs" : {json.dumps(sentence)} }} ]}}'
    shared, task = split_task(grammar)
    assert task == expected
    assert shared == '{"a": 1, "task": [ { "rhs" : "" } ]}'


@pytest.mark.parametrize("sentence", ["find #it#", "find {o.name}", "find [{o.name}]"])
def test_a_task_sentence_that_is_a_template_is_refused(sentence: str) -> None:
    with pytest.raises(GrammarError, match="more than plain text"):
        split_task(f'"task": [{{"rhs": "{sentence}"}}]')


def test_a_grammar_without_a_task_is_refused() -> None:
    with pytest.raises(GrammarError, match="no task sentence"):
        split_task('"tasks": [{"rhs": "x"}]')


# ---- whole games ------------------------------------------------------------------------------------------


def test_a_changed_sentence_is_played_changed() -> None:
    goal = "(opened Fridge_bar_1)"
    changed = GRAMMAR.replace("You arrive at {r.name}.", "Here stands the {r.name}, at {lend.id}.")
    changed = changed.replace('template :: "take {o} from {r}"', 'template :: "grab {o} off {r}"')
    assert changed.count("Here stands") == changed.count("grab {o}") == 1
    engine = Engine(parse_game(kitchen().file(goal, grammar=changed)))
    assert engine.step("go to shelf 1") == "Here stands the shelf 1, at loc_bar_1. On the shelf 1, you see nothing."
    assert "grab apple 3 off countertop 1" in engine.admissible
    assert "take apple 3 from countertop 1" not in engine.admissible
    assert engine.step("grab apple 3 off countertop 1") == "You pick up the apple 3 from the countertop 1."
    # The unchanged grammar is compiled apart: a cached one must not be mistaken for the other.
    plain = Engine(parse_game(kitchen().file(goal)))
    assert plain.step("go to shelf 1") == "You arrive at shelf 1. On the shelf 1, you see nothing."


def test_games_with_one_grammar_share_its_compilation() -> None:
    first, second = (parse_game(kitchen().file("(opened Fridge_bar_1)", task)) for task in ("sing", "dance"))
    assert first.grammar is second.grammar
    assert Engine(first).reset().endswith("Your task is to: sing.")
    assert Engine(second).reset().endswith("Your task is to: dance.")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("action CloseObject", "action ShutObject", "the grammar has no action 'closeobject'"),
        ('"task": [', '"job": [', "the grammar has no task sentence"),
        ("{r.name} is closed", "{r.nam} is closed", "cannot evaluate the expression 'r.nam'"),
        ("& opened(r:receptacle)", "& ajar(r:receptacle)", "unknown predicate 'ajar'"),
        ('"intro"', '"outro"', "no symbol '#intro#'"),
    ],
)
def test_a_broken_grammar_is_refused_with_the_name_of_the_game(old: str, new: str, reason: str) -> None:
    assert old in GRAMMAR
    with pytest.raises(GameError) as caught:
        parse_game(kitchen().file("(opened Fridge_bar_1)", grammar=GRAMMAR.replace(old, new)), "train/x/y")
    assert str(caught.value).startswith("train/x/y: ")
    assert reason in str(caught.value)
    assert str(caught.value).endswith("Use engine='reference' for this game.")


@given(st.text(alphabet='\0{}[]#"|;<>/\\ \n\tro.name&(:,)x', max_size=40))
@settings(max_examples=200, deadline=None)
def test_any_production_is_either_rendered_or_refused(engine: Engine, rhs: str) -> None:
    try:
        rendered = text(engine, rhs)
    except GrammarError:
        return
    assert isinstance(rendered, str)
