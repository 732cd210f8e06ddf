# Penstock from its sources: a static binary alone in an empty image.
#
#   docker build -t penstock --build-arg VERSION="$(git describe --tags --always --dirty)" .
#
# VERSION is what `penstock version`, /v1/status and the label org.opencontainers.image.version say: the repository itself
# is not sent to the engine.
# GO_IMAGE is any image with Go 1.26 and a shell, best by its digest: golang@sha256:…. tests/image.sh makes one without a registry.
ARG GO_IMAGE=golang:1.26
FROM ${GO_IMAGE} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -tags=grpcnotrace -ldflags="-s -w -X main.stamped=${VERSION}" -o /penstock ./cmd/node

FROM scratch
COPY --from=build /penstock /penstock
ARG VERSION
LABEL org.opencontainers.image.title="penstock" \
      org.opencontainers.image.description="A peer-to-peer rate limiter cluster" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
USER 65532:65532
# gossip (TCP and UDP), peers, gRPC, HTTP
EXPOSE 7946/tcp 7946/udp 7947/tcp 7948/tcp 7949/tcp 7950/tcp
HEALTHCHECK --interval=2s --timeout=3s --start-period=30s --retries=3 CMD ["/penstock", "healthcheck"]
ENTRYPOINT ["/penstock"]
CMD ["serve"]
