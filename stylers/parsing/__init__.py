"""Reading a model's output as it arrives.

A grammar is a generator over a `Reader`: it is written as if the whole text were there, and pauses (`yield`) where it
is not yet. Because no primitive decides before it has seen what it needs, the place where the stream is cut cannot
change the result; because nothing is read twice, the cost is linear in the length of the text.
"""
