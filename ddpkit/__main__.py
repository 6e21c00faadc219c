"""`python -m ddpkit` is `ddpkit`."""

from ddpkit.commands.main import main

main()
