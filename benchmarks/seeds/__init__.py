"""The seed cases: other compilers' open issues, measured."""
