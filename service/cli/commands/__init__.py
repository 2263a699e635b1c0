"""The commands of `fuseplan`, a file each."""
