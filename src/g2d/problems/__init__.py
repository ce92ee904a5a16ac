from g2d.problems.problem import Problem, read_problems, write_problems

__all__ = ["Problem", "read_problems", "write_problems"]
