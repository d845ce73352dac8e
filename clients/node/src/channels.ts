// SPDX-License-Identifier: Apache-2.0
// Connections to the services, made at their first use, and calls over them with retries.

import { readFileSync } from "node:fs";
import * as grpc from "@grpc/grpc-js";
import { closed, fromCall, ReputError, streamEnded } from "./core/errors.js";
import type { Gate } from "./core/gate.js";
import { isLocal, MESSAGE_SIZE_BYTES_MAX, type Settings } from "./core/options.js";
import { isFollowed } from "./core/retry.js";
import { Route } from "./core/route.js";
import { AppendServiceService, type AppendStreamResponse } from "./gen/reput/commitlog/v1/append_service.js";

type Service = keyof Settings["targets"];

/** A method of the stubs with a single request, such as `TopicServiceService.getTopic`. */
export type Method<Request, Answer> = Pick<
  grpc.MethodDefinition<Request, Answer>,
  "path" | "requestSerialize" | "responseDeserialize"
>;

/** The options of a call. */
export interface RunOptions {
  /** False: the call is not repeated when its answer is lost. True unless given. */
  isRepeatable?: boolean;
  /** Milliseconds on top of the client's time-out, for calls that wait by design. 0 unless given. */
  extraTimeoutMs?: number;
}

/** The events of a stream: its answers in sequence, and a single time the error that ends it. */
export interface StreamListener<Answer> {
  onAnswer(answer: Answer): void;
  onEnd(error: ReputError): void;
}

/** An open stream. `target` is its address, `cancel` ends it. */
export interface Stream {
  readonly target: string;
  readonly cancel: () => void;
}

/** An AppendStream. Requests are bytes; `onWritten` is called when the connection has accepted a request. */
export interface AppendStream extends Stream {
  readonly write: (request: Buffer, onWritten: () => void) => void;
}

/** The name and version of this client, which `reput clients` shows. */
const USER_AGENT = "reput-node/0.1.0";

const CHANNEL_OPTIONS: grpc.ChannelOptions = {
  "grpc.primary_user_agent": USER_AGENT,
  "grpc.max_receive_message_length": MESSAGE_SIZE_BYTES_MAX,
  "grpc.max_send_message_length": MESSAGE_SIZE_BYTES_MAX,
  // The client finds a restarted server again within seconds, not after two minutes.
  "grpc.initial_reconnect_backoff_ms": 100,
  "grpc.max_reconnect_backoff_ms": 2000,
  // When a server vanished or is frozen, calls and streams that wait for it end.
  "grpc.keepalive_time_ms": 20_000,
  "grpc.keepalive_timeout_ms": 10_000,
  // This client retries itself: gRPC's own retries would keep copies of the sent messages.
  "grpc.enable_retries": 0,
};

export class Channels {
  readonly settings: Settings;
  readonly #credentials: grpc.ChannelCredentials;
  readonly #metadata = new grpc.Metadata();
  readonly #routes: Record<Service, Route>;
  readonly #clients = new Map<string, grpc.Client>();
  /** Functions that end the running calls and the pauses before retries. */
  readonly #cancels = new Set<() => void>();
  #isClosed = false;

  /** Throws the error of a file that can't be read. */
  constructor(settings: Settings) {
    const { caFile, keyFile, certificateFile, token, targets } = settings;
    const read = (file: string) => (file === "" ? null : readFileSync(file));
    this.settings = settings;
    this.#credentials =
      caFile === ""
        ? grpc.credentials.createInsecure()
        : grpc.credentials.createSsl(caFile === "system" ? null : read(caFile), read(keyFile), read(certificateFile));
    this.#routes = { commitlog: new Route(targets.commitlog), indexer: new Route(targets.indexer) };
    if (token !== "") this.#metadata.set("authorization", `Bearer ${token}`);
  }

  /** Runs a call, with retries until the time-out. Rejects with ReputError. */
  async run<Request, Answer>(
    method: Method<Request, Answer>,
    request: Request,
    { isRepeatable = true, extraTimeoutMs = 0 }: RunOptions = {},
  ): Promise<Answer> {
    const route = this.#routes[serviceOf(method.path)];
    const endMs = performance.now() + this.settings.timeoutMs + extraTimeoutMs;
    for (let attempt = 0, followCount = 0; ; ) {
      const { target } = route;
      try {
        return await this.#runOnce(target, method, request, endMs - performance.now());
      } catch (error) {
        if (!(error instanceof ReputError) || this.#isClosed) throw error;
        route.onFailure(target, error);
        const leftMs = endMs - performance.now();
        if (leftMs > 0 && isFollowed(error, followCount)) {
          followCount++;
          continue;
        }
        followCount = 0;
        const delayMs = this.settings.retry.delayWithinMs(leftMs, attempt++, error, isRepeatable);
        if (delayMs === undefined) throw error;
        await this.#pause(delayMs);
      }
    }
  }

  /**
   * Opens a stream of answers, without retries and time-out. Its answers pass the gate. While the gate keeps an answer,
   * no more is read from the connection.
   */
  openAnswers<Request, Answer>(
    { path, requestSerialize, responseDeserialize }: Method<Request, Answer>,
    request: Request,
    gate: Gate,
    listener: StreamListener<Answer>,
  ): Stream {
    const route = this.#routes[serviceOf(path)];
    const options = { interceptors: [through(gate)] };
    const call = this.#client(route.target).makeServerStreamRequest(
      path, requestSerialize, responseDeserialize, request, this.#metadata, options,
    );
    return this.#listen(call, route, listener);
  }

  /** Opens an AppendStream to the current target of appends. */
  openAppends(listener: StreamListener<AppendStreamResponse>): AppendStream {
    const { path, responseDeserialize } = AppendServiceService.appendStream;
    const route = this.#routes.commitlog;
    const same = (request: Buffer) => request;
    const call = this.#client(route.target).makeBidiStreamRequest(path, same, responseDeserialize, this.#metadata);
    return { ...this.#listen(call, route, listener), write: (request, onWritten) => call.write(request, onWritten) };
  }

  /** Changes the target of appends after a refusal on a stream of appends. */
  onMoved(stream: AppendStream, error: ReputError): void {
    this.#routes.commitlog.onFailure(stream.target, error);
  }

  /** Ends all calls and connections. */
  close(): void {
    this.#isClosed = true;
    for (const cancel of this.#cancels) cancel();
    for (const client of this.#clients.values()) client.close();
  }

  #runOnce<Request, Answer>(
    target: string,
    { path, requestSerialize, responseDeserialize }: Method<Request, Answer>,
    request: Request,
    timeoutMs: number,
  ): Promise<Answer> {
    const client = this.#client(target);
    return new Promise((resolve, reject) => {
      const onEnd = (error: grpc.ServiceError | null, answer?: Answer) => {
        this.#cancels.delete(cancel);
        if (error === null) resolve(answer as Answer);
        else reject(this.#isClosed ? closed("client") : fromCall(error));
      };
      const options = { deadline: Date.now() + timeoutMs };
      const call = client.makeUnaryRequest(
        path, requestSerialize, responseDeserialize, request, this.#metadata, options, onEnd,
      );
      const cancel = () => call.cancel();
      this.#cancels.add(cancel);
    });
  }

  #listen<Answer>(
    call: grpc.ClientReadableStream<Answer> | grpc.ClientDuplexStream<Buffer, Answer>,
    route: Route,
    listener: StreamListener<Answer>,
  ): Stream {
    const { target } = route;
    const cancel = () => call.cancel();
    this.#cancels.add(cancel);
    call.on("data", (answer: Answer) => listener.onAnswer(answer));
    call.on("error", () => {}); // the status has the same error, and always comes
    call.on("status", (ended: grpc.StatusObject) => {
      this.#cancels.delete(cancel);
      const error = ended.code === grpc.status.OK ? streamEnded() : fromCall(ended);
      route.onFailure(target, error);
      listener.onEnd(error);
    });
    return { target, cancel };
  }

  #pause(delayMs: number): Promise<void> {
    return new Promise((resolve, reject) => {
      const end = (settle: () => void) => () => {
        clearTimeout(timer);
        this.#cancels.delete(cancel);
        settle();
      };
      const cancel = end(() => reject(closed("client")));
      const timer = setTimeout(end(resolve), delayMs);
      this.#cancels.add(cancel);
    });
  }

  #client(target: string): grpc.Client {
    if (this.#isClosed) throw closed("client");
    let client = this.#clients.get(target);
    if (client === undefined) {
      // Targets on this machine are used without the proxy of `http_proxy`.
      const options = isLocal(target) ? { ...CHANNEL_OPTIONS, "grpc.enable_http_proxy": 0 } : CHANNEL_OPTIONS;
      client = new grpc.Client(target, this.#credentials, options);
      this.#clients.set(target, client);
    }
    return client;
  }
}

/**
 * Returns the service that has a method, by the package in its path. Throws RangeError for a service without an
 * address.
 */
function serviceOf(path: string): Service {
  const name = /^\/reput\.(commitlog|indexer)\./.exec(path)?.[1];
  if (name === undefined) throw new RangeError(`${path} is no method of the CommitLog or the Indexer`);
  return name as Service;
}

/** gRPC reads a stream's next answer when the answer before has passed all interceptors. */
function through(gate: Gate): grpc.Interceptor {
  const onReceiveMessage = (answer: unknown, pass: (answer: unknown) => void) => gate.enter(() => pass(answer));
  const start: grpc.Requester["start"] = (metadata, _, next) => next(metadata, { onReceiveMessage });
  return (options, nextCall) => new grpc.InterceptingCall(nextCall(options), { start });
}
