"""The ET operator's kinds (`kai.alibabacloud.com/v1alpha1`), as its users write and read them: a TrainingJob becomes a TFJob
without PS, ScaleOut and ScaleIn become a change of `replicas` of a TFJob of ours. Pure; `tfjob.operator.et` acts.

`command`: what a launcher's command says of the script; `conversion`: a TrainingJob as a TFJob; `mirror`: its status;
`scalers`: ScaleOut and ScaleIn; `looking`: all of one name together; `words`: what is called how, and conditions.
"""
