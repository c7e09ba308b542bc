"""`python -m hire` is the command `hire`."""

from hire.cli import main

main()
