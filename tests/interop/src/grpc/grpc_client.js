// rocketmq-client-nodejs under the command of the tests, with the operations of grpc_drivers.py: one JSON object a line
// on stdin, one answer a line on stdout, commands run at the same time. Ends when stdin does. Run with the client on
// NODE_PATH.
'use strict';

const readline = require('node:readline');
const { ConsumeResult, Producer, PushConsumer, SimpleConsumer } = require('rocketmq-client-nodejs');
const { TransactionResolution } = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const options = { endpoints: process.argv[2], namespace: '', requestTimeout: 10000 };
const silent = { info() {}, warn() {}, debug() {}, error() {} };
const clients = new Map();
const received = new Map();
const pushed = new Map();
const checked = [];

function entryOf(view) {
  return {
    key: `${view.messageId}/${view.deliveryAttempt}`,
    message_id: view.messageId,
    body: view.body.toString(),
    tag: view.tag || null,
    group: view.messageGroup || null,
    attempt: view.deliveryAttempt,
    at_ms: Date.now(),
  };
}

function messageOf(command) {
  return {
    topic: command.topic,
    body: Buffer.from(command.body),
    tag: command.tag,
    messageGroup: command.group,
    delay: command.delay_ms,
  };
}

async function start(command, client) {
  await client.startup();
  clients.set(command.name, client);
  return null;
}

const operations = {
  producer(command) {
    const checker = command.resolution && {
      async check(view) {
        checked.push(view.body.toString());
        return TransactionResolution[command.resolution];
      },
    };
    return start(command, new Producer({ ...options, logger: silent, topics: [ command.topic ], checker }));
  },
  async send(command) {
    const receipt = await clients.get(command.name).send(messageOf(command));
    return { message_id: receipt.messageId, recall_handle: receipt.recallHandle || null };
  },
  async transaction(command) {
    const producer = clients.get(command.name);
    const transaction = producer.beginTransaction();
    const receipt = await producer.send(messageOf(command), transaction);
    if (command.end === 'COMMIT') await transaction.commit();
    if (command.end === 'ROLLBACK') await transaction.rollback();
    return receipt.messageId;
  },
  async recall(command) {
    return (await clients.get(command.name).recallMessage(command.topic, command.handle)).messageId;
  },
  async checked() {
    return checked;
  },
  simple(command) {
    return start(command, new SimpleConsumer({
      ...options, logger: silent, consumerGroup: command.group, awaitDuration: command.await_ms,
      subscriptions: new Map([[ command.topic, command.tag ]]),
    }));
  },
  async receive(command) {
    const found = await clients.get(command.name).receive(command.max, command.invisible_ms);
    return found.map(view => {
      const entry = entryOf(view);
      received.set(entry.key, view);
      return entry;
    });
  },
  async ack(command) {
    await clients.get(command.name).ack(received.get(command.key));
    return null;
  },
  async change(command) {
    await clients.get(command.name).changeInvisibleDuration(received.get(command.key), command.ms);
    return null;
  },
  push(command) {
    const entries = [];
    pushed.set(command.name, entries);
    return start(command, new PushConsumer({
      ...options, logger: silent, consumerGroup: command.group,
      subscriptions: new Map([[ command.topic, command.tag ]]),
      messageListener: {
        consume(view) {
          entries.push(entryOf(view));
          return view.deliveryAttempt <= command.failures ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
        },
      },
    }));
  },
  async pushed(command) {
    return pushed.get(command.name);
  },
  async stop(command) {
    await clients.get(command.name).shutdown();
    clients.delete(command.name);
    return null;
  },
};

readline.createInterface({ input: process.stdin }).on('line', async line => {
  const command = JSON.parse(line);
  let answer;
  try {
    answer = { id: command.id, ok: await operations[command.op](command) };
  } catch (error) {
    answer = { id: command.id, error: String(error) };
  }
  process.stdout.write(JSON.stringify(answer) + '\n');
}).on('close', () => process.exit(0));
