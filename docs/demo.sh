#!/bin/sh
# The demonstration behind `make demo`: oracle, random and a real small model on generated games, in one table.
# Usage: sh docs/demo.sh [path of the seedbench command]
set -eu
seedbench=${1:-seedbench}
panel=mini-alfworld/valid_unseen
protocol=alfworld/quick
out=${DEMO_OUT:-runs/demo}

echo "1/4  the model: SmolLM2-135M-Instruct, 135 million parameters (fetched once)"
"$seedbench" models get smollm2-135m
echo "2/4  oracle and random on all of $panel"
"$seedbench" eval oracle --panel $panel --protocol $protocol --out "$out/oracle" --quiet >/dev/null
"$seedbench" eval random --panel $panel --protocol $protocol --out "$out/random" --quiet >/dev/null
echo "3/4  the model on twelve games of it, two a family (two minutes or so on two cores)"
"$seedbench" eval smollm2-135m --panel $panel --protocol $protocol --limit 12 --out "$out/smollm2" >/dev/null
echo "4/4  one table"
"$seedbench" table "$out/oracle" "$out/random" "$out/smollm2"
echo
echo "Look at what the model did:  $seedbench view $out/smollm2"
