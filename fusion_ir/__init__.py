"""The language of fusion graphs: ops and their rules, the formats that graphs come in, the interpreter."""
