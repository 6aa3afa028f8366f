// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which volumes a start serves: those of the cache, with what the configuration says of each.
//!
//! The cache is the truth about which volumes there are, about their names and modes. The
//! configuration says where an origin is, if it is elsewhere than it was, and what a start sets. A
//! configuration with other volumes than the cache is refused. (A cache of format version 1 does
//! not know where its origins are: there the configuration names each of them, in its order.)

use std::collections::{HashMap, HashSet};

use flashfront_engine::format::{OriginRecord, Superblock};

use super::error::OriginsError;
use crate::config::{Config, Volume};

/// The name of a volume that was given none.
const UNNAMED: &str = "data";

/// The volumes to serve, in the order of the cache.
pub(super) fn resolve(config: &Config, superblock: &Superblock) -> Result<Vec<Volume>, OriginsError> {
    let records = &superblock.origins;
    let by_place = superblock.table.is_none();
    if by_place && records.len() != config.volumes.len() {
        let (cache, given) = (config.cache.clone(), config.volumes.len());
        return Err(OriginsError::VolumeCount { cache, expected: records.len(), given });
    }
    if by_place {
        let volumes = config.volumes.iter().zip(records);
        return Ok(volumes.map(|(volume, record)| Volume { id: record.id, ..volume.clone() }).collect());
    }
    // `serve --origin` names no volume.
    let alone = match (&config.volumes[..], &records[..]) {
        ([volume], [record]) if volume.name == UNNAMED && record.name != UNNAMED => Some(volume),
        _ => None,
    };
    let known: Vec<String> = records.iter().map(|record| record.name.clone()).collect();
    if let Some(name) = unknown(&config.volumes, &known) {
        let (cache, name, known) = (config.cache.clone(), name.to_owned(), known.join(", "));
        return Err(OriginsError::NoSuchVolume { cache, name, known });
    }
    let by_name: HashMap<&str, &Volume> = config.volumes.iter().rev().map(|it| (it.name.as_str(), it)).collect();
    let find = |record: &OriginRecord| {
        let named = by_name.get(record.name.as_str()).copied().or(alone);
        let known =
            || (!record.origin_path.is_empty()).then(|| Volume::new(&record.name, (&record.origin_path).into()));
        let volume = named.cloned().or_else(known);
        let volume = volume.map(|volume| Volume { id: record.id, name: record.name.clone(), ..volume });
        volume.ok_or_else(|| OriginsError::NoPath { cache: config.cache.clone(), name: record.name.clone() })
    };
    records.iter().map(find).collect()
}

/// The name of the first volume of a configuration that a cache with these volumes does not have,
/// if there is one. `known` is empty where the cache does not know.
pub(super) fn unknown<'a>(volumes: &'a [Volume], known: &[String]) -> Option<&'a str> {
    let names: HashSet<&str> = known.iter().map(String::as_str).collect();
    let is_alone = known.len() == 1 && matches!(volumes, [volume] if volume.name == UNNAMED);
    let unknown = volumes.iter().find(|volume| !names.contains(volume.name.as_str()));
    unknown.filter(|_| !names.is_empty() && !is_alone).map(|volume| volume.name.as_str())
}

#[cfg(test)]
mod tests {
    use flashfront_engine::OriginId;
    use flashfront_engine::format::Table;

    use super::*;

    fn superblock(volumes: &[(&str, &str)], table: bool) -> Superblock {
        let mut superblock = crate::offline::superblock_in_ram(4 << 20, Vec::new()).unwrap();
        let record = |(id, (name, path)): (u32, &(&str, &str))| OriginRecord {
            id: OriginId(id * 3),
            name: (*name).to_owned(),
            origin_path: (*path).to_owned(),
            ..OriginRecord::default()
        };
        superblock.origins = (0..).zip(volumes).map(record).collect();
        superblock.table = table.then_some(Table { first_block: 1, blocks: 1, number: 0, next_id: 9 });
        superblock
    }

    fn resolved(given: &[(&str, &str)], superblock: &Superblock) -> Result<Vec<String>, String> {
        let mut config = Config::new("/cache".into());
        config.volumes = given.iter().map(|(name, path)| Volume::new(name, (*path).into())).collect();
        let volumes = resolve(&config, superblock).map_err(|error| error.to_string())?;
        Ok(volumes.iter().map(|it| format!("{} {} {}", it.id.0, it.name, it.origin.display())).collect())
    }

    #[test]
    fn the_cache_knows_its_volumes_and_the_file_where_they_are() {
        let superblock = superblock(&[("root", "/dev/a"), ("home", "/dev/b")], true);
        assert_eq!(resolved(&[], &superblock).unwrap(), ["0 root /dev/a", "3 home /dev/b"]);
        assert_eq!(resolved(&[("home", "/dev/c")], &superblock).unwrap(), ["0 root /dev/a", "3 home /dev/c"]);
        let said = resolved(&[("hone", "/dev/c")], &superblock).unwrap_err();
        assert!(said.contains("no volume `hone`") && said.contains("root, home"), "{said}");
    }

    #[test]
    fn the_only_volume_needs_no_name() {
        let one = superblock(&[("root", "")], true);
        assert_eq!(resolved(&[("data", "/dev/a")], &one).unwrap(), ["0 root /dev/a"]);
        assert!(resolved(&[], &one).unwrap_err().contains("`root`"));
        assert!(resolved(&[("other", "/dev/a")], &one).is_err());
    }

    #[test]
    fn a_cache_of_version_1_takes_its_origins_in_their_order() {
        let old = superblock(&[("root", ""), ("home", "")], false);
        assert_eq!(resolved(&[("x", "/dev/a"), ("y", "/dev/b")], &old).unwrap(), ["0 x /dev/a", "3 y /dev/b"]);
        assert!(resolved(&[("x", "/dev/a")], &old).unwrap_err().contains("2 origin(s), 1 given"));
    }
}
