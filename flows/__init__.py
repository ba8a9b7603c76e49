"""What runs when: the composition root, the plan, the Prefect flow and the command line."""
