//! The connection to a server or a cluster: made when it is needed, given up when it fails, told apart by a number.
//!
//! One connection carries everybody's commands at once. Deliberately absent: waiting and trying again; whoever asks
//! knows how long it can wait.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, Pipeline, RedisError, RedisFuture, Value};

/// Where the server is and how long it is waited for.
#[derive(Clone)]
pub struct RedisAddress {
    /// `redis://…`, `rediss://…`; several are nodes of one cluster.
    pub urls: Vec<String>,
    /// It is a cluster even though there is only one address.
    pub is_cluster: bool,
    /// For a connection.
    pub connect_deadline: Duration,
    /// For an answer.
    pub answer_deadline: Duration,
}

impl RedisAddress {
    /// One server, with the usual patience.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            urls: vec![url.into()],
            is_cluster: false,
            connect_deadline: Duration::from_secs(1),
            answer_deadline: Duration::from_secs(5),
        }
    }
}

/// The address may hold a password.
impl std::fmt::Debug for RedisAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisAddress")
            .field("urls", &self.urls.len())
            .field("is_cluster", &self.is_cluster)
            .finish_non_exhaustive()
    }
}

/// Why something was not done. The address is never in the words: it may hold a password.
#[derive(Debug, thiserror::Error)]
pub enum RedisFailure {
    /// The address makes no sense.
    #[error("the address of Redis cannot be used: {0}")]
    Address(String),
    /// No connection, no answer, or an answer that means "not now".
    #[error("redis does not answer as it should")]
    Unreachable(#[from] RedisError),
    /// It answered with something that no version of ours says.
    #[error("redis gave an answer that cannot be read: {0}")]
    Odd(String),
}

/// The way to a server.
pub struct RedisLink {
    way: Way,
    config: AsyncConnectionConfig,
    state: Mutex<State>,
}

enum Way {
    Single(Box<Client>),
    Cluster(Box<ClusterClient>),
}

#[derive(Default)]
struct State {
    open: Option<RedisConnection>,
    /// Grows whenever a connection was given up.
    generation: u64,
}

/// An open connection; clones share it.
#[derive(Clone)]
pub enum RedisConnection {
    /// To one server.
    Single(MultiplexedConnection),
    /// To all nodes of a cluster.
    Cluster(ClusterConnection),
}

impl RedisLink {
    /// Looks at the address; connects to nobody yet.
    pub fn new(address: &RedisAddress) -> Result<Self, RedisFailure> {
        let wrong = |error: RedisError| RedisFailure::Address(error.to_string());
        let first = address.urls.first().ok_or_else(|| RedisFailure::Address("there is none".to_owned()))?;
        let way = if address.is_cluster || address.urls.len() > 1 {
            let builder = ClusterClient::builder(address.urls.iter().map(String::as_str))
                .connection_timeout(address.connect_deadline)
                .response_timeout(address.answer_deadline)
                .retries(4);
            Way::Cluster(Box::new(builder.build().map_err(wrong)?))
        } else {
            Way::Single(Box::new(Client::open(first.as_str()).map_err(wrong)?))
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(address.connect_deadline))
            .set_response_timeout(Some(address.answer_deadline));
        Ok(Self { way, config, state: Mutex::default() })
    }

    /// Whether keys of different slots must be kept apart.
    pub fn is_cluster(&self) -> bool {
        matches!(self.way, Way::Cluster(_))
    }

    /// The connection and its number; opened now if there is none. Two who ask at once may open two; one is then dropped
    /// when its last command is through.
    pub async fn connection(&self) -> Result<(RedisConnection, u64), RedisFailure> {
        if let State { open: Some(open), generation } = &*self.lock() {
            return Ok((open.clone(), *generation));
        }
        let opened = match &self.way {
            Way::Single(client) => {
                let config = self.config.clone();
                RedisConnection::Single(client.get_multiplexed_async_connection_with_config(&config).await?)
            }
            Way::Cluster(client) => RedisConnection::Cluster(client.get_async_connection().await?),
        };
        let mut state = self.lock();
        let open = state.open.get_or_insert(opened).clone();
        Ok((open, state.generation))
    }

    /// The connection of that number is of no use any more.
    pub fn give_up(&self, generation: u64) {
        let mut state = self.lock();
        if state.generation == generation {
            state.open = None;
            state.generation += 1;
        }
    }

    /// A command that may be repeated: if the connection turns out to be dead, once more on a new one.
    pub async fn ask<T: redis::FromRedisValue>(&self, command: &Cmd) -> Result<T, RedisFailure> {
        let mut has_failed = false;
        loop {
            let (mut connection, generation) = self.connection().await?;
            match command.query_async(&mut connection).await {
                Ok(answer) => return Ok(answer),
                Err(error) => {
                    self.give_up(generation);
                    if has_failed || !was_dead(&error) {
                        return Err(error.into());
                    }
                    has_failed = true;
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock can panic")
    }
}

/// Whether the connection was found closed: worth another one at once. Silence is not; it has cost time already.
pub(crate) fn was_dead(error: &RedisError) -> bool {
    (error.is_connection_dropped() || error.is_io_error())
        && !error.is_timeout()
        && !error.is_connection_refusal()
}

impl std::fmt::Debug for RedisLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisLink").field("is_cluster", &self.is_cluster()).finish_non_exhaustive()
    }
}

impl ConnectionLike for RedisConnection {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::Single(connection) => connection.req_packed_command(cmd),
            Self::Cluster(connection) => connection.req_packed_command(cmd),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::Single(connection) => connection.req_packed_commands(pipeline, offset, count),
            Self::Cluster(connection) => connection.req_packed_commands(pipeline, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::Single(connection) => connection.get_db(),
            Self::Cluster(connection) => connection.get_db(),
        }
    }
}
