// SPDX-License-Identifier: MIT OR Apache-2.0
//! An object store on the network, by the crate `object_store`: S3 and what speaks its protocol,
//! Google's, Azure's.
//!
//! A thread of this file drives all connections to the store. The carrier's threads wait for it.
//! Credentials come from where the ecosystem has them: the environment (`AWS_...`, `GOOGLE_...`,
//! `AZURE_...`), the roles of instances and containers, and files of web identities.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use flashfront_object::Fault;
use futures_util::TryStreamExt;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path;
use object_store::{
    BackoffConfig, ClientOptions, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
    RetryConfig,
};

use crate::hedge::hedged;
use crate::meter::{Meter, SHORT_BYTES, code};
use crate::store::{Listed, Store, volume_of};

/// A request that takes longer has failed: 8 MiB at 70 KB/s.
const REQUEST_LIMIT: Duration = Duration::from_secs(120);
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// The thread that drives connections; `None` if the kernel is out of threads.
static RUNTIME: LazyLock<Option<tokio::runtime::Handle>> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let handle = runtime.handle().clone();
    let drive = move || runtime.block_on(std::future::pending::<()>());
    std::thread::Builder::new().name("objects".to_owned()).spawn(drive).ok()?;
    Some(handle)
});

/// A kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    S3,
    Google,
    Azure,
}

/// A bucket.
#[derive(Debug)]
pub(crate) struct Cloud {
    store: Arc<dyn ObjectStore>,
    meter: Arc<Meter>,
    runtime: tokio::runtime::Handle,
}

impl Cloud {
    /// Finds credentials and settings. Nothing is asked for yet.
    pub(crate) fn new(kind: Kind, bucket: &str, meter: Arc<Meter>) -> Result<Self, String> {
        // The second to come finds it installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = RUNTIME.clone().ok_or("the kernel has no thread for it")?;
        // Whoever counts the requests repeats them.
        let retry = RetryConfig { backoff: BackoffConfig::default(), max_retries: 0, retry_timeout: REQUEST_LIMIT };
        let client = ClientOptions::new().with_timeout(REQUEST_LIMIT).with_connect_timeout(CONNECT_LIMIT);
        // A server named by hand may speak plain HTTP: whoever has written http:// has meant it.
        let plain = ["AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_ENDPOINT_URL_S3"]
            .iter()
            .any(|name| std::env::var(name).is_ok_and(|url| url.starts_with("http://")));
        let store: object_store::Result<Arc<dyn ObjectStore>> = match kind {
            Kind::S3 => {
                let builder = AmazonS3Builder::from_env().with_bucket_name(bucket).with_retry(retry);
                // Objects are deleted one by one, as not all stores know more.
                let builder = builder.with_disable_bulk_delete(true);
                builder.with_client_options(client.with_allow_http(plain)).build().map(|it| Arc::new(it) as _)
            }
            Kind::Google => {
                let builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket).with_retry(retry);
                builder.with_client_options(client).build().map(|it| Arc::new(it) as _)
            }
            Kind::Azure => {
                let builder = MicrosoftAzureBuilder::from_env().with_container_name(bucket).with_retry(retry);
                builder.with_client_options(client).build().map(|it| Arc::new(it) as _)
            }
        };
        Ok(Self { store: store.map_err(|error| one_line(&error))?, meter, runtime })
    }

    /// Does a request in the thread of the connections, and waits for it.
    fn run<T: Send + 'static>(
        &self,
        request: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> Result<T, Fault> {
        let (give, take) = std::sync::mpsc::channel();
        self.runtime.spawn(async move {
            // Whoever waited may be gone.
            let _ = give.send(request.await);
        });
        let result = take.recv().map_err(|_| Fault::Away("the thread of the connections has ended".to_owned()))?;
        result.map_err(fault)
    }
}

fn fault(error: object_store::Error) -> Fault {
    use object_store::Error as E;
    let told = one_line(&error);
    match error {
        E::NotFound { .. } => Fault::Absent,
        E::AlreadyExists { .. } | E::Precondition { .. } => Fault::Taken,
        E::PermissionDenied { .. }
        | E::Unauthenticated { .. }
        | E::NotSupported { .. }
        | E::NotImplemented { .. }
        | E::InvalidPath { .. }
        | E::UnknownConfigurationKey { .. } => Fault::Refused(told),
        _ if is_refused(&told) => Fault::Refused(told),
        _ => Fault::Away(told),
    }
}

/// Whether the server has said no, as by 404 for a bucket that is not there. 408 and 429 are no
/// refusals, and neither is 409, which a store says in a race.
fn is_refused(told: &str) -> bool {
    code(told).is_some_and(|code| (400..500).contains(&code) && ![408, 409, 412, 429].contains(&code))
}

/// The error with its causes, in one line.
fn one_line(error: &dyn std::error::Error) -> String {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let text = next.to_string();
        if !told.contains(&text) {
            told = format!("{told}: {text}");
        }
        cause = next.source();
    }
    told.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A body that the crate sends without a copy.
struct Shared(Arc<Vec<u8>>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Store for Cloud {
    fn put(&self, name: &str, body: &Arc<Vec<u8>>, create: bool) -> Result<(), Fault> {
        let (store, path, payload) =
            (Arc::clone(&self.store), Path::from(name), PutPayload::from(Bytes::from_owner(Shared(Arc::clone(body)))));
        let mode = if create { PutMode::Create } else { PutMode::Overwrite };
        let options = PutOptions { mode, ..PutOptions::default() };
        self.run(async move { store.put_opts(&path, payload, options).await.map(drop) })
    }

    fn get(&self, name: &str, range: Option<(u64, u64)>) -> Result<Vec<u8>, Fault> {
        let (store, path, meter) = (Arc::clone(&self.store), Path::from(name), Arc::clone(&self.meter));
        let is_short = range.is_some_and(|(_, len)| len <= SHORT_BYTES);
        let range = range.map(|(at, len)| GetRange::Bounded(at..at + len));
        let options = GetOptions { range, ..GetOptions::default() };
        self.run(async move {
            let get = || async { store.get_opts(&path, options.clone()).await?.bytes().await };
            let bytes = if is_short { hedged(&meter, get).await? } else { get().await? };
            // No copy, as nobody else has them.
            Ok(bytes.into())
        })
    }

    fn list(&self, prefix: &str) -> Result<Vec<Listed>, Fault> {
        let (store, path) = (Arc::clone(&self.store), Path::from(prefix));
        let listed = |meta: object_store::ObjectMeta| Listed { name: meta.location.to_string(), bytes: meta.size };
        self.run(async move { store.list(Some(&path)).map_ok(listed).try_collect().await })
    }

    fn volume_below(&self, prefix: &str) -> Result<Option<String>, Fault> {
        let (store, path, prefix) = (Arc::clone(&self.store), Path::from(prefix), prefix.to_owned());
        self.run(async move {
            let mut listed = store.list(Some(&path)).map_ok(|meta| meta.location.to_string());
            while let Some(name) = listed.try_next().await? {
                if let Some(volume) = volume_of(&name, &prefix) {
                    return Ok(Some(volume));
                }
            }
            Ok(None)
        })
    }

    fn delete(&self, name: &str) -> Result<(), Fault> {
        let (store, path) = (Arc::clone(&self.store), Path::from(name));
        match self.run(async move { store.delete(&path).await }) {
            Err(Fault::Absent) => Ok(()),
            result => result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_no_is_told_from_a_later() {
        assert!(is_refused("Server returned non-2xx status code: 404 Not Found: NoSuchBucket"));
        assert!(is_refused("Server returned non-2xx status code: 403 Forbidden"));
        for later in ["non-2xx status code: 429 Too Many Requests", "status code: 503 Slow Down", "connection refused"]
        {
            assert!(!is_refused(later), "{later}");
        }
    }
}
