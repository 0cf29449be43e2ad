# Copyright The Crane Authors.
# SPDX-License-Identifier: Apache-2.0
#
# One image for each of Crane's cluster binaries:
#
#   docker build --build-arg COMMAND=craned -t registry.example/crane/craned:dev .
#
# The base images are arguments, so that a mirror or an air-gapped registry can take their place.
ARG BUILD_IMAGE=golang:1.26
ARG RUN_IMAGE=scratch

FROM ${BUILD_IMAGE} AS build
ARG COMMAND=craned
ARG VERSION=unknown
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# The same binary as that of `make images` (hack/images), which a test compares.
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false \
      -ldflags "-s -w -X crane.io/crane/internal/component/version.version=${VERSION} $(if [ "${COMMAND}" = crane-scheduler ]; then cat hack/controlplane-ldflags; fi)" \
      -o /out/crane-binary ./cmd/${COMMAND}

FROM ${RUN_IMAGE}
# Certificate authorities, for a Prometheus that is served over TLS.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/crane-binary /crane-binary
USER 65532:65532
ENTRYPOINT ["/crane-binary"]
