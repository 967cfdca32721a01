# A user's image, as an example: TensorFlow, the example scripts, and the package, which they read their data through. It runs as
# an ordinary TFJob, and as an elastic one with either value of the annotation aimaster.deeprec.io/package.
# From the top of the repository:   docker build -f tfjob/images/examples.Dockerfile -t deeprec-ext-examples:0.1.0 .

FROM python:3.11-slim AS build
COPY . /source
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels /source

FROM python:3.11-slim
COPY --from=build /wheels /wheels
# Without dependencies: those of a training process are TensorFlow's own.
RUN pip install --no-cache-dir "tensorflow-cpu>=2.15,<2.16" \
 && pip install --no-cache-dir --no-deps /wheels/*.whl
COPY examples /examples
ENV HOME=/tmp PYTHONUNBUFFERED=1
USER 65532:65532
WORKDIR /tmp
CMD ["python", "/examples/census_wide_deep/train.py", "--help"]
