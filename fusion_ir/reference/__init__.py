"""The meaning of graphs: the interpreter, evaluation in chunks, random inputs, smaller graphs of the same ops."""
