"""A zoo of models for the estimator: `train.py` trains one, `cases.py` has which, `run.py` measures them, `score.py` judges."""
