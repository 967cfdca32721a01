"""The contract, pure: a TFJob (`spec`), how everything of it is called (`names`), the `annotations` that make it elastic, its
`conditions`, and how the API writes things: `kinds` of objects, `events`, `times`, `quantities`.

Of a manifest that somebody has written, `templates` says whether the server would make pods of it, and `unknown` which keys
nobody reads. `scaler` is the note of a ScaleOut or ScaleIn of the ET operator on it, `arbitrated` what its AIMaster bids and
the arbiter allows, `parked` the word of an AIMaster whose pods are about to go.
"""
