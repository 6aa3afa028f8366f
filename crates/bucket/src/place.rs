// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a volume is: a URL, as people write it, and the store that it names.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use flashfront_object::{Key, Name};

use crate::error::Error;
use crate::folder::Folder;
use crate::kept_pages::KeptPages;
use crate::map_file::Pages;
use crate::meter::Meter;
use crate::metered::Metered;
use crate::store::Store;

/// The place of a volume: its store, and the prefix of its names.
#[derive(Clone, Debug)]
pub struct Place {
    url: String,
    /// What two volumes must share to be able to share objects.
    bucket: String,
    prefix: String,
    store: Arc<dyn Store>,
    meter: Arc<Meter>,
    /// Where pages of its map are kept, if they are. Copies of the place have it, too.
    pages: Arc<OnceLock<KeptPages>>,
}

/// Whether a text is the URL of a volume in an object store.
#[must_use]
pub fn is_url(text: &str) -> bool {
    ["file://", "s3://", "gs://", "az://"].iter().any(|scheme| text.starts_with(scheme))
}

/// Cuts URL@SNAPSHOT. What is no such thing stays whole: the text before an `@` may be a secret.
#[must_use]
pub fn split_snapshot(text: &str) -> (&str, Option<&str>) {
    let whole = (text, None);
    let Some((url, name)) = text.rsplit_once('@') else { return whole };
    let Some((scheme, rest)) = url.split_once("://") else { return whole };
    let bucket = rest.split('/').next().unwrap_or_default();
    let is_volume = rest.contains('/') && (scheme == "file" || !bucket.contains([':', '@']));
    if is_volume && !name.is_empty() && !name.contains('/') { (url, Some(name)) } else { whole }
}

impl Place {
    /// Finds the store that a URL names. Nothing is asked for yet.
    ///
    /// # Errors
    /// [`Error::Url`].
    pub fn of(url: &str) -> Result<Self, Error> {
        let wrong = |what: &str, todo| Error::Url { url: shown(url), what: what.to_owned(), todo };
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("it has no scheme", SCHEMES))?;
        let rest = rest.trim_end_matches('/');
        if rest.contains('@') || rest.contains('?') || rest.contains('#') {
            return Err(wrong(
                "a name can't have `@`, `?` or `#`",
                "credentials come from the environment (AWS_ACCESS_KEY_ID and others) and are never part of a URL",
            ));
        }
        let parts = rest.split('/').skip(1);
        if parts.clone().any(|part| part.is_empty() || part == "." || part == "..") {
            return Err(wrong("its path has an empty part, `.` or `..`", "write the path without them"));
        }
        match scheme {
            "file" => {
                let path = rest
                    .strip_prefix('/')
                    .ok_or_else(|| wrong("the path of a file URL must be absolute", "write file:///the/whole/path"))?;
                let store = Arc::new(Folder::new(Path::new("/")));
                Ok(Self::new(format!("file:///{path}"), "file".to_owned(), path, store, Arc::default()))
            }
            "s3" | "gs" | "az" => {
                let (bucket, prefix) = rest.split_once('/').ok_or_else(|| {
                    wrong(
                        "it names a bucket and no volume in it",
                        "write SCHEME://BUCKET/NAME: all its objects begin with NAME/",
                    )
                })?;
                if bucket.is_empty() {
                    return Err(wrong("it names no bucket", "write SCHEME://BUCKET/NAME"));
                }
                let meter = Arc::default();
                let (store, url) = (cloud(scheme, bucket, url, &meter)?, format!("{scheme}://{rest}"));
                Ok(Self::new(url, format!("{scheme}://{bucket}"), prefix, store, meter))
            }
            _ => Err(wrong("its scheme is not known", SCHEMES)),
        }
    }

    /// A place in a store that is there already.
    #[must_use]
    pub fn in_store(store: Arc<dyn Store>, prefix: &str) -> Self {
        Self::new(format!("memory:{prefix}"), "memory".to_owned(), prefix, store, Arc::default())
    }

    fn new(url: String, bucket: String, prefix: &str, store: Arc<dyn Store>, meter: Arc<Meter>) -> Self {
        let store = Arc::new(Metered::new(store, Arc::clone(&meter)));
        Self { url, bucket, prefix: prefix.to_owned(), store, meter, pages: Arc::default() }
    }

    /// The place, reached by another way.
    pub(crate) fn with_store(&self, store: Arc<dyn Store>) -> Self {
        Self { store, ..self.clone() }
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Counts the requests that were made by this place and its copies.
    #[must_use]
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Keeps pages of the map of the volume that has this number. The first call counts.
    pub fn keep_pages(&self, pages: &Pages, volume: [u8; 16]) {
        let _ = self.pages.set(KeptPages::new(pages.clone(), volume, &self.bucket));
    }

    pub(crate) fn pages(&self) -> Option<&KeptPages> {
        self.pages.get()
    }

    /// The prefix of the volume's names.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Whether objects of one can be used by the other.
    #[must_use]
    pub fn shares_bucket_with(&self, other: &Self) -> bool {
        self.bucket == other.bucket
    }

    /// The place that this URL names, if it is in the same bucket.
    pub(crate) fn beside(&self, url: &str) -> Option<Self> {
        let bucket = self.url.strip_suffix(&self.prefix)?;
        let prefix = url.strip_prefix(bucket)?;
        Some(Self { url: url.to_owned(), prefix: prefix.to_owned(), ..self.clone() })
    }

    /// The places that this one lies in, the nearest first.
    pub(crate) fn outer(&self) -> Vec<Self> {
        let cuts = self.prefix.rmatch_indices('/').map(|(at, _)| &self.prefix[..at]);
        cuts.map(|prefix| Self { url: self.url_of(prefix), prefix: prefix.to_owned(), ..self.clone() }).collect()
    }

    /// The URL of another prefix in the same bucket.
    pub(crate) fn url_of(&self, prefix: &str) -> String {
        format!("{}{prefix}", self.url.strip_suffix(&self.prefix).unwrap_or_default())
    }

    /// The whole name of an object of the volume.
    #[must_use]
    pub fn name(&self, name: Name) -> String {
        format!("{}/{name}", self.prefix)
    }

    /// The whole name of an object, which may be another volume's.
    #[must_use]
    pub fn key(&self, key: &Key) -> String {
        format!("{}/{}", key.source.as_deref().unwrap_or(&self.prefix), key.name)
    }

    /// The object of the volume that has this whole name.
    #[must_use]
    pub fn parse(&self, whole: &str) -> Option<Name> {
        whole.strip_prefix(&self.prefix)?.strip_prefix('/')?.parse().ok()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

/// The URL as messages show it: what stands before an `@` may be a secret.
fn shown(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://...@{rest}"),
        _ => url.to_owned(),
    }
}

const SCHEMES: &str = "write file:///the/whole/path, s3://BUCKET/NAME, gs://BUCKET/NAME or az://CONTAINER/NAME";

#[cfg(feature = "s3")]
fn cloud(scheme: &str, bucket: &str, url: &str, meter: &Arc<Meter>) -> Result<Arc<dyn Store>, Error> {
    use crate::cloud::{Cloud, Kind};
    let (kind, todo) = match scheme {
        "gs" => (Kind::Google, "set what it misses in the environment (GOOGLE_APPLICATION_CREDENTIALS and others)"),
        "az" => (Kind::Azure, "set what it misses in the environment (AZURE_STORAGE_ACCOUNT_NAME and others)"),
        _ => (Kind::S3, "set what it misses in the environment (AWS_REGION, AWS_ENDPOINT_URL and others)"),
    };
    let made = Cloud::new(kind, bucket, Arc::clone(meter));
    Ok(Arc::new(made.map_err(|what| Error::Url { url: url.to_owned(), what, todo })?))
}

#[cfg(not(feature = "s3"))]
fn cloud(_: &str, _: &str, url: &str, _: &Arc<Meter>) -> Result<Arc<dyn Store>, Error> {
    let what = "this program was built without object stores of the network".to_owned();
    Err(Error::Url { url: url.to_owned(), what, todo: "build it with the feature `s3`" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_cut_off_and_a_secret_is_not() {
        assert_eq!(split_snapshot("s3://bucket/disk@monday"), ("s3://bucket/disk", Some("monday")));
        assert_eq!(split_snapshot("file:///srv/disk@10:30"), ("file:///srv/disk", Some("10:30")));
        for whole in ["s3://bucket/disk", "s3://key:se/cret@bucket", "s3://key:secret@bucket/a", "a@b", "s3://b/d@"] {
            assert_eq!(split_snapshot(whole), (whole, None));
        }
    }

    #[test]
    fn urls_name_places_and_wrong_ones_say_what_to_write() {
        let place = Place::of("file:///srv/disks/one/").unwrap();
        assert_eq!((place.to_string().as_str(), place.prefix()), ("file:///srv/disks/one", "srv/disks/one"));
        assert_eq!(place.parse("srv/disks/one/manifest/0000000000000001"), Some(Name::Manifest(1)));
        assert_eq!(place.parse("srv/disks/other/manifest/0000000000000001"), None);
        for (url, what) in [
            ("file://relative", "absolute"),
            ("file:///", "absolute"),
            ("file:///a/../b", "`..`"),
            ("s3://bucket", "no volume"),
            ("gs://bucket", "no volume"),
            ("az://container/", "no volume"),
            ("s3://key:secret@bucket/a", "never part of a URL"),
            ("ftp://a/b", "not known"),
            ("nothing", "no scheme"),
        ] {
            let told = Place::of(url).unwrap_err().to_string();
            assert!(told.contains(what) && !told.contains("secret"), "{url}: {told}");
        }
    }
}
