# SPDX-License-Identifier: BSD-2-Clause
"""What the installed programs say of themselves, by --help."""

import re
import subprocess

SECTIONS = {"inaggd": 8, "inaggctl": 8, "inagg-ps": 8, "inagg-sweep": 8, "inagg-netns": 1, "inagg-perf": 1}


class Help:
    """The options (names of one are a tuple) and sub-commands of a program, or of one of its sub-commands."""

    def __init__(self, path, *command):
        done = subprocess.run([path, *command, "--help"], capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout, f"{path} {command}: {done.stderr}"
        self.options, self.commands, self.text = set(), [], done.stdout
        section = None
        for line in done.stdout.splitlines():
            if heading := re.fullmatch(r"(\S.*):", line):
                section = heading[1]
            elif match := re.match(r"  ([-a-z]\S*)", line):
                if section == "Subcommands":
                    self.commands.append(match[1])
                elif section != "Positionals" and match[1].startswith("-"):
                    self.options.add(tuple(re.sub(r"\{.*?\}", "", match[1]).split(",")))

    def names(self):
        return {name for option in self.options for name in option}


def commands(path, *before):
    """{words: Help} of a program and all its sub-commands; the program itself is ()."""
    found = {before: Help(path, *before)}
    for command in found[before].commands:
        found.update(commands(path, *before, command))
    return found
