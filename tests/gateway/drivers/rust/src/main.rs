// SPDX-License-Identifier: Apache-2.0

//! The official client for Rust as a driver of the table. This release has producers, which can't recall messages, and
//! simple consumers, which receive and acknowledge.

use std::collections::HashMap;
use std::io::{stdin, BufRead};
use std::time::Duration;

use rocketmq::conf::{ClientOption, LoggingFormat, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};
use serde_json::{json, Value};

type Answer = Result<Value, String>;

#[derive(Default)]
struct Driver {
    option: ClientOption,
    producers: HashMap<String, Producer>,
    consumers: HashMap<String, SimpleConsumer>,
    messages: Vec<(String, MessageView)>,
}

fn text<'a>(ask: &'a Value, name: &str, otherwise: &'a str) -> &'a str {
    ask[name].as_str().unwrap_or(otherwise)
}

fn told(error: impl std::fmt::Debug) -> String {
    format!("{error:?}")
}

fn described(message: &MessageView) -> Value {
    let mut keys = message.keys().to_vec();
    keys.sort();
    json!({
        "body": String::from_utf8_lossy(message.body()),
        "tag": message.tag().unwrap_or(""),
        "keys": keys,
        "properties": message.properties(),
        "group": message.message_group().unwrap_or(""),
        "attempt": message.delivery_attempt(),
        "id": message.message_id(),
    })
}

fn message_of(ask: &Value) -> MessageBuilder {
    let (topic, body) = (text(ask, "topic", ""), text(ask, "body", ""));
    let mut message = MessageBuilder::builder().set_topic(topic).set_body(body.into());
    if let Some(tag) = ask["tag"].as_str() {
        message = message.set_tag(tag);
    }
    if let Some(keys) = ask["keys"].as_array() {
        message = message.set_keys(keys.iter().filter_map(Value::as_str).collect());
    }
    if let Some(group) = ask["group"].as_str() {
        message = message.set_message_group(group);
    }
    if let Some(deliver_s) = ask["deliver_s"].as_i64() {
        message = message.set_delivery_timestamp(deliver_s); // this client takes seconds
    }
    if let Some(properties) = ask["properties"].as_object() {
        let pairs = properties.iter().filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_string())));
        message = message.set_properties(pairs.collect::<HashMap<_, _>>());
    }
    message
}

/// Returns the end of a transaction that its producer has forgotten: the end that is named in the message's body.
fn check(_: String, message: MessageView) -> TransactionResolution {
    match message.body() {
        b"commit when asked" => TransactionResolution::COMMIT,
        _ => TransactionResolution::ROLLBACK,
    }
}

impl Driver {
    async fn connect(&mut self, ask: &Value) -> Answer {
        for (_, producer) in self.producers.drain() {
            producer.shutdown().await.map_err(told)?;
        }
        for (_, consumer) in self.consumers.drain() {
            consumer.shutdown().await.map_err(told)?;
        }
        self.messages.clear();
        self.option = ClientOption::default();
        self.option.set_access_url(text(ask, "endpoints", ""));
        self.option.set_enable_tls(ask["tls"].as_bool().unwrap_or(false));
        self.option.set_long_polling_timeout(Duration::from_secs(5));
        if let Some(key) = ask["key"].as_str() {
            self.option.set_access_key(key);
            self.option.set_secret_key(text(ask, "secret", ""));
        }
        Ok(json!({}))
    }

    async fn producer(&mut self, topic: &str) -> Result<&Producer, String> {
        if !self.producers.contains_key(topic) {
            let mut option = ProducerOption::default();
            option.set_topics(vec![topic]);
            option.set_logging_format(LoggingFormat::Terminal);
            let mut producer =
                Producer::new_transaction_producer(option, self.option.clone(), Box::new(check)).map_err(told)?;
            producer.start().await.map_err(told)?;
            self.producers.insert(topic.to_string(), producer);
        }
        Ok(&self.producers[topic])
    }

    async fn send(&mut self, ask: &Value) -> Answer {
        let message = message_of(ask).build().map_err(told)?;
        let receipt = self.producer(text(ask, "topic", "")).await?.send(message).await.map_err(told)?;
        Ok(json!({"id": receipt.message_id()}))
    }

    async fn begin(&mut self, ask: &Value) -> Answer {
        let message = message_of(ask).enable_transaction().build().map_err(told)?;
        let producer = self.producer(text(ask, "topic", "")).await?;
        let transaction = producer.send_transaction_message(message).await.map_err(told)?;
        let id = transaction.message_id().to_string();
        match text(ask, "end", "") {
            "commit" => transaction.commit().await.map_err(told)?,
            "rollback" => transaction.rollback().await.map_err(told)?,
            _ => {}
        }
        Ok(json!({"id": id}))
    }

    async fn receive(&mut self, ask: &Value) -> Answer {
        let (topic, group) = (text(ask, "topic", ""), text(ask, "consumer_group", ""));
        let name = format!("{topic} {group}");
        if !self.consumers.contains_key(&name) {
            let mut option = SimpleConsumerOption::default();
            option.set_topics(vec![topic]);
            option.set_consumer_group(group);
            option.set_logging_format(LoggingFormat::Terminal);
            let mut consumer = SimpleConsumer::new(option, self.option.clone()).map_err(told)?;
            consumer.start().await.map_err(told)?;
            self.consumers.insert(name.clone(), consumer);
        }
        let expression = match ask["sql"].as_str() {
            Some(sql) => FilterExpression::new(FilterType::Sql, sql),
            None => FilterExpression::new(FilterType::Tag, text(ask, "tags", "*")),
        };
        let (count, seconds) = (ask["count"].as_i64().unwrap_or(1), ask["invisible_s"].as_u64().unwrap_or(60));
        let found = self.consumers[&name]
            .receive_with(topic, &expression, count as i32, Duration::from_secs(seconds))
            .await
            .map_err(told)?;
        let mut messages = Vec::new();
        for message in found {
            let mut one = described(&message);
            one["number"] = json!(self.messages.len());
            messages.push(one);
            self.messages.push((name.clone(), message));
        }
        Ok(json!({"messages": messages}))
    }

    async fn ack(&mut self, ask: &Value) -> Answer {
        let number = ask["number"].as_u64().unwrap_or(0) as usize;
        let (name, message) = &self.messages[number];
        self.consumers[name].ack(message).await.map_err(told)?;
        Ok(json!({}))
    }

    async fn answer(&mut self, ask: &Value) -> Answer {
        match text(ask, "do", "") {
            "connect" => self.connect(ask).await,
            "send" => self.send(ask).await,
            "begin" => self.begin(ask).await,
            "receive" => self.receive(ask).await,
            "ack" => self.ack(ask).await,
            other => Err(format!("no {other}")),
        }
    }
}

#[tokio::main]
async fn main() {
    let mut driver = Driver::default();
    for line in stdin().lock().lines() {
        let ask: Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
        match driver.answer(&ask).await {
            Ok(answer) => println!("{}", json!({"ok": answer})),
            Err(error) => println!("{}", json!({"error": error})),
        }
    }
}
