// SPDX-License-Identifier: MIT OR Apache-2.0
//! Volumes that come and go in a life, beside those that stay.

use flashfront_device::{Device, Rng};
use flashfront_engine::format::Shares;
use flashfront_engine::{DirtyOnRemove, Mode, OriginId, VolumeChange, VolumeError};

use super::extra::Extra;
use super::plan::Plan;
use crate::client::Client;
use crate::spec::OriginSpec;

/// The most volumes beside those that stay.
const MOST: usize = 4;
/// All have one size, so that what is left of one would fit another one.
const SIZE_BYTES: u64 = 256 << 10;
/// Larger ones don't grow any more: a life looks at all of them in its end.
const GROWN_BYTES: u64 = 16 << 20;

/// The volumes that came, and take requests. The first `staying` never go.
fn guests(client: &Client, staying: usize) -> Vec<usize> {
    client.volumes().into_iter().filter(|origin| *origin >= staying && !client.leaving.contains_key(origin)).collect()
}

/// Which volume a request is for: half of them go to one that came, if there is any.
pub(super) fn pick(rng: &mut Rng, client: &Client, origin: usize, staying: usize) -> usize {
    let guests = guests(client, staying);
    if guests.is_empty() || rng.below(2) == 0 { origin } else { guests[rng.below(guests.len() as u64) as usize] }
}

/// Adds a volume, or changes or removes one that came. A removal is not always waited for: the
/// power may be cut before.
pub(super) fn change(rng: &mut Rng, client: &mut Client, staying: usize) {
    if rng.below(4) == 0 {
        return grow(rng, client, staying);
    }
    let guests = guests(client, staying);
    let few = client.volumes().len() - staying < MOST;
    if guests.is_empty() || few && rng.below(2) == 0 {
        if few {
            let mode = Mode::ALL[rng.below(2) as usize];
            let spec = OriginSpec { size_bytes: SIZE_BYTES, logical_block_bytes: 512, mode };
            client.add_volume(spec).expect("there is room for one more");
        }
        return;
    }
    let guest = guests[rng.below(guests.len() as u64) as usize];
    if rng.below(3) == 0 {
        let name = format!("another-{}", rng.below(1 << 40));
        let ticket = client.ask_volume(VolumeChange::Rename { origin: OriginId(guest as u32), name });
        client.await_volume(ticket).expect("nobody has this name");
        return;
    }
    let dirty = [DirtyOnRemove::Refuse, DirtyOnRemove::Destage, DirtyOnRemove::Discard][rng.below(3) as usize];
    let ticket = client.ask_remove(guest, dirty);
    if rng.below(3) > 0 {
        let answer = client.await_volume(ticket);
        // A volume that grows stays until that is done.
        let refused = dirty == DirtyOnRemove::Refuse || answer == Err(VolumeError::Busy);
        assert!(answer.is_ok() || refused, "{answer:?}");
    }
}

/// Grows a volume, of those that stay or of those that came. The growth is not always waited for.
fn grow(rng: &mut Rng, client: &mut Client, staying: usize) {
    let all: Vec<usize> = (0..staying).chain(guests(client, staying)).collect();
    let origin = all[rng.below(all.len() as u64) as usize];
    let disk = client.world.origins[origin].geometry();
    if disk.size_bytes > GROWN_BYTES {
        return;
    }
    let unit = u64::from(disk.logical_block_bytes);
    let to = disk.size_bytes + (1 + rng.below(1 << 20) / unit) * unit;
    // Mostly a whole number of blocks: else it never grows again.
    let to = if rng.below(4) > 0 { to.next_multiple_of(4096) } else { to };
    let ticket = client.ask_grow(origin, to);
    if rng.below(3) > 0 {
        let answer = client.await_volume(ticket);
        let refused =
            matches!(answer, Err(VolumeError::PartOfBlock { .. } | VolumeError::NoRoomBehind | VolumeError::Busy));
        assert!(answer.is_ok() || refused, "{answer:?}");
    }
}

/// Gives a volume that stays other parts of the cache; what can't be is refused, and changes
/// nothing. The change is not always waited for.
pub(super) fn share(rng: &mut Rng, client: &mut Client, plan: &Plan) {
    if !plan.has(Extra::Shares) || rng.below(25) > 0 {
        return;
    }
    let origin = OriginId(rng.below(plan.spec.origins.len() as u64) as u32);
    let capacity_bytes = client.world.engine().status().capacity_blocks * 4096;
    let mut part = |of: u64| if rng.below(3) == 0 { 0 } else { rng.below(capacity_bytes / of) };
    let (min_bytes, max_bytes) = (part(2), part(1));
    let weight = if rng.below(2) == 0 { 0 } else { 1 + rng.below(1000) as u16 };
    let shares = Shares { min_bytes, max_bytes, weight, ..Shares::default() };
    let ticket = client.ask_volume(VolumeChange::SetShares { origin, shares });
    if rng.below(3) > 0 {
        let answer = client.await_volume(ticket);
        let Shares { min_bytes, max_bytes, .. } = shares;
        match answer {
            Err(VolumeError::LargestPartTooSmall { least_bytes }) => assert!(max_bytes < least_bytes),
            Err(VolumeError::PartsCrossed { .. }) => assert!(min_bytes > max_bytes && max_bytes > 0),
            Err(VolumeError::PartsTooLarge { others_bytes, most_bytes, .. }) => {
                assert!(min_bytes + others_bytes > most_bytes);
            }
            answer => {
                assert!(matches!(answer, Ok(_) | Err(VolumeError::Busy | VolumeError::CacheFailed)), "{answer:?}")
            }
        }
    }
}
