# SPDX-License-Identifier: BSD-2-Clause
"""The mutants of mutants.toml, all in one copy of the headers: `inagg_mutant` says which of them is at work; 0: none."""

import argparse
import re
import shutil
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
INCLUDE = HERE.parents[1] / "include"
DECLARATION = "extern int inagg_mutant;\n"


@dataclass(frozen=True)
class Mutant:
    number: int
    name: str
    file: str
    function: str
    original: str
    mutated: str
    by: str  # who must notice


def mutants():
    """All of them, in the list's order."""
    rows = tomllib.loads((HERE / "mutants.toml").read_text())["mutant"]
    return [Mutant(number, row["name"], row["file"], row["in"], row["from"], row["to"], row["by"])
            for number, row in enumerate(rows, 1)]


def body_of(text, function):
    """Where the function's body begins and ends."""
    begin = re.search(rf"^INAGG_INLINE[^;{{]*\b{function}\([^;{{]*\)\n{{$", text, re.M)
    if not begin:
        sys.exit(f"mutants: there is no function {function}")
    return begin.end(), text.index("\n}\n", begin.end())


def place_of(text, mutant):
    """Where the expression is: it must be there once, but for the names that contain it."""
    begin, end = body_of(text, mutant.function)
    found = [match.start() for match in re.finditer(rf"(?<![\w>.]){re.escape(mutant.original)}(?!\w|->)", text[begin:end])]
    if len(found) != 1:
        sys.exit(f"mutants: '{mutant.original}' is {len(found)} times in {mutant.function} of {mutant.file}")
    return begin + found[0]


def mutate(text, of_file):
    """The header with all its mutants."""
    places = sorted(((place_of(text, mutant), mutant) for mutant in of_file), key=lambda found: found[0], reverse=True)
    for (later, _), (place, mutant) in zip(places, places[1:]):
        if place + len(mutant.original) > later:
            sys.exit(f"mutants: '{mutant.original}' in {mutant.function} overlaps with another mutant")
    for place, mutant in places:
        choice = f"(inagg_mutant == {mutant.number} ? ({mutant.mutated}) : ({mutant.original}))"
        text = text[:place] + choice + text[place + len(mutant.original):]
    return re.sub(r"(?m)^(#define INAGG_CORE_\w+_H)$", rf"\1\n{DECLARATION}", text, count=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="write the headers here; without, only see that all mutants apply")
    arguments = parser.parse_args()
    listed = mutants()
    if arguments.out:
        shutil.copytree(INCLUDE, arguments.out, dirs_exist_ok=True)
    for file in sorted({mutant.file for mutant in listed}):
        text = mutate((INCLUDE / "inagg/core" / file).read_text(), [mutant for mutant in listed if mutant.file == file])
        if arguments.out:
            (arguments.out / "inagg/core" / file).write_text(text)
    print(f"{len(listed)} mutants apply")


if __name__ == "__main__":
    main()
