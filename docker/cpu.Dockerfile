# runner for the CPU. In the checkout: docker build -f docker/cpu.Dockerfile -t runner .
# Run: docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/runs" runner +experiment=lenet
FROM python:3.13-slim AS wheel
COPY . /source
RUN pip wheel --no-cache-dir --no-deps -w /wheel /source

FROM python:3.13-slim
# The versions that the suite was run with.
COPY constraints.txt /tmp/constraints.txt
RUN --mount=type=bind,from=wheel,source=/wheel,target=/wheel \
    pip install --no-cache-dir -c /tmp/constraints.txt /wheel/*.whl
# Any user may run it: settings and caches of a user without a home go to /tmp.
ENV HOME=/tmp
WORKDIR /runs
ENTRYPOINT ["runner"]
CMD ["--help"]
