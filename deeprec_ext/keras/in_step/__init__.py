"""`fit` in a job without PS: each process has the model, and all make each step together, by the sum of their gradients.

`model`: what a step is then; `voting`: the epochs of a `fit` whose steps are made together; `home`: the process; `doors`: how
Keras is led here. All else of a `fit` is as it is with PS (`keras.leased`).
"""
