// SPDX-License-Identifier: Apache-2.0

package reput

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	commonv1 "reput/clients/go/reputpb/common/v1"
)

// transportSizeBytesMax bounds requests and answers. Servers answer with about 8 MiB and accept batches of 16 MiB.
const transportSizeBytesMax = 64 << 20

// userAgent is the name and version of this client, which `reput clients` shows.
const userAgent = "reput-go/0.1.0"

// Options are the addresses and credentials of the services. [Connect] fills them from the environment and the defaults
// before it passes them to its arguments.
type Options struct {
	// Commitlog is an address (host:port), or several with commas between them: REPUT_CLIENT_COMMITLOG_TARGET, else
	// REPUT_CLIENT_STORE_TARGET, else 127.0.0.1:7101. Calls use the next address when an address can't be reached, and
	// appends are sent to the leader.
	Commitlog string
	// Indexer likewise: REPUT_CLIENT_INDEXER_TARGET, else REPUT_CLIENT_STORE_TARGET, else 127.0.0.1:7102. Services at
	// the same address share a connection.
	Indexer string
	// CAFile has the authorities of the services' certificates, in PEM, or is "system" for the authorities of the
	// machine: REPUT_CLIENT_CA_FILE. Empty: no TLS.
	CAFile string
	// CertificateFile and KeyFile, in PEM, are for mutual TLS: REPUT_CLIENT_CERTIFICATE_FILE, REPUT_CLIENT_KEY_FILE.
	// Both or neither, and only with CAFile.
	CertificateFile, KeyFile string
	// Token is sent with every call: REPUT_CLIENT_TOKEN, else the first word of the file REPUT_CLIENT_TOKEN_FILE.
	Token string
	// Timeout bounds a call with all its retries whose context has no deadline, and the Close of a producer.
	// More than 0; 30 s.
	Timeout time.Duration
	// Retry is the policy for failed calls.
	Retry RetryPolicy
	// DialOptions are further options of gRPC, for example interceptors and handlers of statistics. They come last.
	DialOptions []grpc.DialOption
}

// At changes the address of all services to the address of the store (host:port), or several with commas between them:
// that of its gateway, which serves all APIs.
func At(address string) func(*Options) {
	return func(options *Options) { options.Commitlog, options.Indexer = address, address }
}

// loadOptions returns the options of the environment, and the defaults for the others.
func loadOptions(environment func(string) string) (Options, error) {
	variable := func(name, otherwise string) string {
		if value := environment("REPUT_CLIENT_" + name); value != "" {
			return value
		}
		return otherwise
	}
	options := Options{
		Commitlog:       variable("COMMITLOG_TARGET", variable("STORE_TARGET", "127.0.0.1:7101")),
		Indexer:         variable("INDEXER_TARGET", variable("STORE_TARGET", "127.0.0.1:7102")),
		CAFile:          variable("CA_FILE", ""),
		CertificateFile: variable("CERTIFICATE_FILE", ""),
		KeyFile:         variable("KEY_FILE", ""),
		Token:           variable("TOKEN", ""),
		Timeout:         30 * time.Second,
		Retry:           DefaultRetryPolicy(),
	}
	if file := variable("TOKEN_FILE", ""); file != "" && options.Token == "" {
		content, err := os.ReadFile(file)
		if err != nil {
			return Options{}, badArgument("the token file: %v", err)
		}
		for word := range strings.FieldsSeq(string(content)) {
			options.Token = word
			break
		}
	}
	return options, nil
}

func (o *Options) check() error {
	if o.Timeout <= 0 {
		return badArgument("the time-out is not above 0")
	}
	if (o.CertificateFile == "") != (o.KeyFile == "") || o.CertificateFile != "" && o.CAFile == "" {
		return badArgument("a certificate file and a key file go together, and with a CA file")
	}
	return o.Retry.check()
}

// dialOptions returns gRPC's options for a connection to any address.
func (o *Options) dialOptions() ([]grpc.DialOption, error) {
	transport, err := o.transportCredentials()
	if err != nil {
		return nil, fmt.Errorf("%w: TLS: %w", ErrArgument, err)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithUserAgent(userAgent),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(transportSizeBytesMax), grpc.MaxCallSendMsgSize(transportSizeBytesMax)),
		// When a server vanished or is frozen, calls and streams that wait for it end.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
		// The client finds a restarted server again within two seconds, not after two minutes.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
			MinConnectTimeout: 3 * time.Second,
		}),
		// Retries are this package's own, and DNS is not asked for gRPC's settings.
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
	}
	if o.Token != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearer("Bearer "+o.Token)))
	}
	return append(options, o.DialOptions...), nil
}

func (o *Options) transportCredentials() (credentials.TransportCredentials, error) {
	if o.CAFile == "" {
		return insecure.NewCredentials(), nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CAFile != "system" {
		authorities, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(authorities) {
			return nil, fmt.Errorf("%s has no certificate", o.CAFile)
		}
	}
	if o.CertificateFile != "" {
		certificate, err := tls.LoadX509KeyPair(o.CertificateFile, o.KeyFile)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	return credentials.NewTLS(config), nil
}

// bearer is the value of the metadata key authorization.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": string(b)}, nil
}

// RequireTransportSecurity is false: the operator of the store decides whether a network needs TLS.
func (b bearer) RequireTransportSecurity() bool { return false }

// ProducerOptions are the options of a producer. [Client.NewProducer] fills in the defaults before it passes them to
// its arguments.
type ProducerOptions struct {
	// Linger is how long the first message of a batch waits for further messages, if no caller waits for an outcome.
	// 0 or more; 5 ms.
	Linger time.Duration
	// BatchSizeBytes: a batch is sent when it has so many bytes, at any age; at most 32,768 messages. 1 to 8 MiB, and
	// at most WindowBytes; 512 KiB.
	BatchSizeBytes int
	// WindowBytes bounds the messages whose outcome is not known: Send waits while there are more. An empty window
	// takes a message of any size. 8 MiB.
	WindowBytes int
	// Durability is the level that the store waits for before it answers. The store's own.
	Durability Durability
	// Retry is the policy for failed batches. With 0 retries no message is stored twice. The client's.
	Retry RetryPolicy
	// UniqueIDs: give a unique id in RocketMQ's form to each message without a unique id. True.
	UniqueIDs bool
}

func defaultProducerOptions(retry RetryPolicy) ProducerOptions {
	return ProducerOptions{
		Linger: 5 * time.Millisecond, BatchSizeBytes: 512 << 10, WindowBytes: 8 << 20, Retry: retry, UniqueIDs: true,
	}
}

func (o *ProducerOptions) check() error {
	if o.Linger < 0 {
		return badArgument("the linger time is negative")
	}
	if o.BatchSizeBytes < 1 || o.BatchSizeBytes > min(o.WindowBytes, 8<<20) {
		return badArgument("the batch size must be at least 1 byte, at most the window and at most 8 MiB")
	}
	if _, isKnown := commonv1.Durability_name[int32(o.Durability)]; !isKnown {
		return badArgument("%d is no durability", o.Durability)
	}
	return o.Retry.check()
}
