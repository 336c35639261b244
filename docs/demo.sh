#!/bin/sh
# The demonstration behind `make demo`, on generated games: oracle, random and a real small model in one table, then a
# tiny model that is trained from nothing, by GRPO and by SEED.
# Usage: sh docs/demo.sh [path of the seedbench command]
set -eu
seedbench=${1:-seedbench}
panel=mini-alfworld/valid_unseen
protocol=alfworld/quick
out=${DEMO_OUT:-runs/demo}

echo "1/6  the model: SmolLM2-135M-Instruct, 135 million parameters (fetched once)"
"$seedbench" models get smollm2-135m
echo "2/6  oracle and random on all of $panel"
"$seedbench" eval oracle --panel $panel --protocol $protocol --out "$out/oracle" --quiet >/dev/null
"$seedbench" eval random --panel $panel --protocol $protocol --out "$out/random" --quiet >/dev/null
echo "3/6  the model on twelve games of it, two a family (two minutes or so on two cores)"
"$seedbench" eval smollm2-135m --panel $panel --protocol $protocol --limit 12 --out "$out/smollm2" >/dev/null
echo "4/6  one table"
"$seedbench" table "$out/oracle" "$out/random" "$out/smollm2"
echo
echo "5/6  a tiny model (0.6 million parameters) on small households: supervised warm start, then 15 updates of GRPO"
"$seedbench" train --method grpo --suite mini-alfworld --out "$out/grpo" --updates 15 \
  --set warmstart.updates=120 --set warmstart.episodes=2400 --set validation.every=0
echo
echo "6/6  SEED from the same warm start: it learns to write skills from hindsight, then distils its own"
"$seedbench" train --method seed --suite mini-alfworld --out "$out/seed" --updates 10 \
  --model "$out/grpo/warmstart/final" --set method.stage1.epochs=3 --set validation.every=0
echo
echo "Look at what the real model did:      $seedbench view $out/smollm2"
echo "Look at the skills and their tokens:  $seedbench view $out/seed"
