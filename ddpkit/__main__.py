"""`python -m ddpkit` is `ddpkit`."""

from ddpkit.cli import main

main()
