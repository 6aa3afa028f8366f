// SPDX-License-Identifier: MIT OR Apache-2.0
//! A store in virtual time. It keeps what real ones keep: an object that is there is there for all,
//! and one creator of a name wins. All else may go wrong.

use std::collections::BTreeMap;

use flashfront_device::Rng;
use flashfront_object::{Answer, Effect, Fault, Keys, Manifest, Mode, Name, OpenFault, Opening, Options, Told, Volume};

use super::content::{BLOCK_SECTORS, BLOCKS, Content, sector, stamps};

/// How often what goes wrong, of 1,000 requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rates {
    pub(super) request_lost: u64,
    pub(super) reply_lost: u64,
    pub(super) late: u64,
    pub(super) refused: u64,
    pub(super) torn: u64,
    pub(super) flipped: u64,
    /// The newest manifests that a list may lack.
    pub(super) list_lacks: u64,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Done,
    RequestLost,
    ReplyLost,
    Late,
    Refused,
    Torn,
}

/// The store.
#[derive(Clone, Debug, Default)]
pub(super) struct Store {
    pub(super) objects: BTreeMap<Name, Vec<u8>>,
}

impl Rates {
    pub(super) fn fate(&self, rng: &mut Rng) -> Fate {
        let mut left = rng.below(1000);
        for (rate, fate) in [
            (self.request_lost, Fate::RequestLost),
            (self.reply_lost, Fate::ReplyLost),
            (self.late, Fate::Late),
            (self.refused, Fate::Refused),
            (self.torn, Fate::Torn),
        ] {
            if left < rate {
                return fate;
            }
            left -= rate;
        }
        Fate::Done
    }
}

impl Store {
    /// Carries a request out. A torn upload leaves the first part of its object.
    pub(super) fn carry_out(&mut self, effect: &Effect, is_torn: bool, list_lacks: u64) -> Result<Answer, Fault> {
        match effect {
            Effect::Put { name, body, create, .. } => {
                if *create && self.objects.contains_key(name) {
                    return Err(Fault::Taken);
                }
                let len = if is_torn { body.len() / 2 } else { body.len() };
                self.objects.insert(*name, body[..len].to_vec());
                Ok(Answer::Done)
            }
            Effect::Get { key, range, .. } => {
                let all = self.objects.get(&key.name).ok_or(Fault::Absent)?;
                let part = match range {
                    None => all.as_slice(),
                    Some((at, len)) => all.get(*at as usize..(at + len) as usize).ok_or(Fault::Absent)?,
                };
                Ok(Answer::Bytes(part.to_vec()))
            }
            Effect::List { .. } => {
                let mut numbers = self.manifests();
                let seen = numbers.len().saturating_sub(list_lacks as usize).max(1);
                numbers.truncate(seen);
                Ok(Answer::Numbers(numbers))
            }
            Effect::Delete { name, .. } => {
                self.objects.remove(name);
                Ok(Answer::Done)
            }
            Effect::Told { .. } => unreachable!("bug: nobody asks a store for that"),
        }
    }

    /// The numbers of the manifests, sorted.
    pub(super) fn manifests(&self) -> Vec<u64> {
        let number = |name: &Name| if let Name::Manifest(number) = name { Some(*number) } else { None };
        self.objects.keys().filter_map(number).collect()
    }

    /// The newest manifest that is sound.
    pub(super) fn newest(&self) -> Manifest {
        self.newest_below(u64::MAX).expect("a volume has a manifest")
    }

    pub(super) fn newest_below(&self, below: u64) -> Option<Manifest> {
        let sound = |number: &u64| Manifest::decode(&self.objects[&Name::Manifest(*number)]).ok();
        self.manifests().iter().rev().filter(|number| **number < below).find_map(sound)
    }

    /// Reads what the bucket alone gives, as it is now.
    pub(super) fn content(&mut self, mode: Mode) -> Result<Content, String> {
        let told = |fault: OpenFault| format!("the bucket alone, {mode:?}: {fault}");
        let mut volume = self.open(mode.clone()).map_err(told)?;
        volume.use_keys(test_keys());
        let mut content = Content::new();
        for block in 0..BLOCKS {
            let mut fx = Vec::new();
            volume.read(0, sector(block), BLOCK_SECTORS, &mut fx);
            while let Some(effect) = fx.pop() {
                match effect {
                    Effect::Told { result: Ok(Told::Read(bytes)), .. } => content.extend(stamps(&bytes)?),
                    Effect::Told { result, .. } => return Err(format!("the bucket alone, {mode:?}: {result:?}")),
                    effect => self.answer(&effect, |token, answer| volume.done(token, answer, &mut fx)),
                }
            }
        }
        Ok(content)
    }

    /// Opens the volume with all of its map, as it is now.
    pub(super) fn open(&mut self, mode: Mode) -> Result<Box<Volume>, OpenFault> {
        let mut fx = Vec::new();
        let mut opening = Opening::new(mode, Options::default(), &mut fx);
        let mut opened = None;
        while let Some(effect) = fx.pop() {
            self.answer(&effect, |token, answer| opened = opening.done(token, answer, &mut fx));
            if let Some(opened) = opened {
                return opened;
            }
        }
        unreachable!("bug: an opening waits for nothing")
    }

    fn answer(&mut self, effect: &Effect, give: impl FnOnce(u64, Result<Answer, Fault>)) {
        let answer = self.carry_out(effect, false, 0);
        give(token_of(effect), answer);
    }
}

/// The keys of lives whose volume is encrypted.
pub(super) fn test_keys() -> Keys {
    Keys::new(&[[1; 32], [2; 32]])
}

/// The token of a request.
pub(super) fn token_of(effect: &Effect) -> u64 {
    match effect {
        Effect::Put { token, .. }
        | Effect::Get { token, .. }
        | Effect::List { token, .. }
        | Effect::Delete { token, .. } => *token,
        Effect::Told { ticket, .. } => *ticket,
    }
}

/// Tries before this one.
pub(super) fn attempt_of(effect: &Effect) -> u32 {
    match effect {
        Effect::Put { attempt, .. }
        | Effect::Get { attempt, .. }
        | Effect::List { attempt, .. }
        | Effect::Delete { attempt, .. } => *attempt,
        Effect::Told { .. } => 0,
    }
}
