"""Contractions as matrix products: `dims` -> `call` -> `tasks`, for the families that hand them to a library.

`dims` finds the fewest axes with a stride in each tensor; `call` picks the three of them that one library call covers;
`tasks` cuts the work into tasks and prints them.
"""
