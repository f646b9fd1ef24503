# runner for NVIDIA GPUs. In the checkout: docker build -f docker/cuda.Dockerfile -t runner-cuda .
# Run: docker run --rm --gpus all --user "$(id -u):$(id -g)" -v "$PWD:/runs" runner-cuda +experiment=lenet device=gpu
FROM python:3.13-slim AS wheel
COPY . /source
RUN pip wheel --no-cache-dir --no-deps -w /wheel /source

FROM python:3.13-slim
COPY constraints.txt /tmp/constraints.txt
# onnxruntime-gpu takes the place of onnxruntime, which has the same module. CUDA and cuDNN come as wheels; the driver
# is the host's, which the NVIDIA Container Toolkit makes visible.
RUN --mount=type=bind,from=wheel,source=/wheel,target=/wheel \
    pip install --no-cache-dir -c /tmp/constraints.txt /wheel/*.whl \
    && pip uninstall -y onnxruntime \
    && pip install --no-cache-dir -c /tmp/constraints.txt "onnxruntime-gpu[cuda,cudnn]"
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility HOME=/tmp
WORKDIR /runs
ENTRYPOINT ["runner"]
CMD ["doctor"]
