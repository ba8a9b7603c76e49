"""What budget, rl, distill and evaluate share: prompts to scored rollouts, over one turn or many."""
