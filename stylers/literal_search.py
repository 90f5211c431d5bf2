"""Searching for any of thousands of literal strings at once."""

import re
from collections.abc import Iterable

END = ""  # the key by which a node of the tree says that a literal ends there


class Node(dict[str, "Node"]):
    """What may follow a common beginning, by the next character."""


def any_of(literals: Iterable[str]) -> str:
    """Return a pattern for any of the literals, the longest that fits; one that matches nothing for none.

    An alternation of them all would be tried one by one wherever a match may begin; this one is a tree of what they
    have in common.
    """
    root = Node()
    for literal in literals:
        node = root
        for character in literal:
            node = node.setdefault(character, Node())
        node[END] = Node()
    root.pop(END, None)  # an empty literal
    return _pattern(root) if root else r"(?!)"


def _pattern(node: Node) -> str:
    branches = [_branch(character, child) for character, child in node.items() if character != END]
    if not branches:
        return ""
    if len(branches) == 1 and END not in node:
        return branches[0]
    return f"(?:{'|'.join(branches)}){'?' if END in node else ''}"


def _branch(character: str, child: Node) -> str:
    """What stands on a branch, down to where it forks or a literal ends."""
    run = [character]
    while len(child) == 1 and END not in child:
        [(following, child)] = child.items()
        run.append(following)
    return re.escape("".join(run)) + _pattern(child)
