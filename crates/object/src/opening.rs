// SPDX-License-Identifier: MIT OR Apache-2.0
//! The opening of a volume: find the newest manifest, take over by creating the next one, load.
//!
//! Carriers treat [`Fault::Away`] and [`Fault::Refused`] as they like: a machine that gets one asks
//! again.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::canary::{Canary, planted};
use crate::effect::{Answer, Effect, Fault, OpenFault, Token};
use crate::loading::{Loaded, Loading};
use crate::manifest::{Manifest, ManifestFault};
use crate::mode::Mode;
use crate::name::{Key, Name};
use crate::options::Options;
use crate::volume::Volume;

/// How often an opening begins anew when objects vanish under it.
const RESTARTS_MAX: u32 = 5;

#[derive(Debug)]
enum Step {
    Listing,
    Probing,
    /// The next manifest is being created.
    Fencing(Box<Manifest>, Arc<Vec<u8>>),
    /// The number was taken: by this opening itself, if a reply was lost.
    Confirming(Box<Manifest>, Arc<Vec<u8>>),
    /// The manifest was created. Is there a newer one? The number may be an old one, of which the
    /// manifest was deleted while this opening slept.
    Checking(Box<Manifest>),
    Loading(Box<Loading>),
}

/// An opening under way.
#[derive(Debug)]
pub struct Opening {
    mode: Mode,
    options: Options,
    step: Step,
    /// Numbers of listed manifests that were not tried, sorted.
    listed: Vec<u64>,
    newest: Option<Manifest>,
    /// Damaged manifests above `newest`, by their numbers, and what is wrong with them.
    passed: BTreeMap<u64, String>,
    /// The number that is looked for.
    at: u64,
    restarts: u32,
    /// The request without an answer, but for those of a loading.
    asked: Option<(Token, Effect)>,
    /// Next free token.
    tokens: Token,
}

impl Opening {
    /// Begins.
    #[must_use]
    pub fn new(mode: Mode, options: Options, fx: &mut Vec<Effect>) -> Self {
        let (step, listed) = (Step::Listing, Vec::new());
        let passed = BTreeMap::new();
        let mut opening =
            Self { mode, options, step, listed, newest: None, passed, at: 1, restarts: 0, asked: None, tokens: 0 };
        match opening.mode {
            Mode::ReadAt(number) => opening.probe(number, fx),
            _ => opening.list(fx),
        }
        opening
    }

    /// Takes an answer; returns the volume, or why there is none, once that is known.
    pub fn done(
        &mut self,
        token: Token,
        answer: Result<Answer, Fault>,
        fx: &mut Vec<Effect>,
    ) -> Option<Result<Box<Volume>, OpenFault>> {
        if let Step::Loading(loading) = &mut self.step {
            let loaded = loading.done(token, answer, fx)?;
            return match loaded {
                Ok(loaded) => Some(Ok(self.volume(loaded))),
                // A writer has deleted what an older manifest needs.
                Err(OpenFault::Damaged { .. }) if self.mode == Mode::Read && self.restarts < RESTARTS_MAX => {
                    // Late answers to this loading are nobody's.
                    self.tokens = loading.tokens();
                    self.restart(fx);
                    None
                }
                Err(fault) => Some(Err(fault)),
            };
        }
        let (_, asked) = self.asked.take_if(|(of, _)| *of == token)?;
        let answer = match answer {
            Err(Fault::Away(_) | Fault::Refused(_)) => {
                let again = asked.again();
                self.asked = Some((token, again.clone()));
                fx.push(again);
                return None;
            }
            answer => answer,
        };
        match std::mem::replace(&mut self.step, Step::Listing) {
            Step::Listing => self.listed(answer, fx),
            Step::Probing => self.probed(answer, fx),
            Step::Fencing(mine, body) => self.fenced(mine, body, answer, fx),
            Step::Confirming(mine, body) => self.confirmed(mine, body, answer, fx),
            Step::Checking(mine) => self.checked(*mine, answer, fx),
            Step::Loading(_) => None,
        }
    }

    /// The manifest of the state that is being loaded, as soon as it is known.
    #[must_use]
    pub fn manifest(&self) -> Option<&Manifest> {
        match &self.step {
            Step::Loading(loading) => Some(loading.manifest()),
            _ => None,
        }
    }

    /// Asks for what `effect` makes of the next token.
    fn ask(&mut self, effect: impl FnOnce(Token) -> Effect, fx: &mut Vec<Effect>) {
        let token = self.tokens;
        self.tokens += 1;
        let effect = effect(token);
        self.asked = Some((token, effect.clone()));
        fx.push(effect);
    }

    fn restart(&mut self, fx: &mut Vec<Effect>) {
        self.restarts += 1;
        self.newest = None;
        self.passed.clear();
        self.list(fx);
    }

    fn list(&mut self, fx: &mut Vec<Effect>) {
        self.step = Step::Listing;
        self.ask(|token| Effect::List { token, attempt: 0 }, fx);
    }

    fn probe(&mut self, number: u64, fx: &mut Vec<Effect>) {
        self.at = number;
        self.step = Step::Probing;
        let key = Key::from(Name::Manifest(number));
        self.ask(|token| Effect::Get { token, key, range: None, pages: Vec::new(), attempt: 0 }, fx);
    }

    fn listed(
        &mut self,
        answer: Result<Answer, Fault>,
        fx: &mut Vec<Effect>,
    ) -> Option<Result<Box<Volume>, OpenFault>> {
        if let Ok(Answer::Numbers(mut numbers)) = answer {
            numbers.sort_unstable();
            self.listed = numbers;
        }
        // An empty list may only be late.
        let first = self.listed.pop().unwrap_or(1);
        self.probe(first, fx);
        None
    }

    fn probed(
        &mut self,
        answer: Result<Answer, Fault>,
        fx: &mut Vec<Effect>,
    ) -> Option<Result<Box<Volume>, OpenFault>> {
        let found = match answer {
            Ok(Answer::Bytes(bytes)) => Some(Manifest::decode(&bytes)),
            _ => None,
        };
        if let Some(Err(ManifestFault::Foreign(what))) = found {
            return Some(Err(OpenFault::Foreign { name: Name::Manifest(self.at), what }));
        }
        if let Mode::ReadAt(number) = self.mode {
            return match found {
                Some(Ok(manifest)) => {
                    self.load(manifest, fx);
                    None
                }
                Some(Err(ManifestFault::Torn(what) | ManifestFault::Foreign(what))) => {
                    Some(Err(OpenFault::Damaged { name: Name::Manifest(number), what }))
                }
                None => Some(Err(OpenFault::NoManifest(number))),
            };
        }
        if let Some(found) = found {
            match found {
                Ok(manifest) => {
                    self.newest = Some(manifest);
                    self.passed.clear();
                }
                // A torn one is passed over: its number is used up.
                Err(ManifestFault::Torn(what) | ManifestFault::Foreign(what)) => {
                    self.passed.insert(self.at, what);
                }
            }
            self.probe(self.at + 1, fx);
            return None;
        }
        let Some(newest) = self.newest.clone() else {
            if let Some(older) = self.listed.pop() {
                self.probe(older, fx);
            } else if self.restarts < RESTARTS_MAX && self.at > 1 {
                self.restart(fx);
            } else {
                return Some(Err(match self.passed.pop_last() {
                    Some((number, what)) => OpenFault::Damaged { name: Name::Manifest(number), what },
                    None => OpenFault::NoVolume,
                }));
            }
            return None;
        };
        match &self.mode {
            Mode::Write(writer)
                if writer.after.is_some_and(|after| after != newest.epoch) && !planted(Canary::AfterIgnored) =>
            {
                return Some(Err(OpenFault::Overtaken(newest.by())));
            }
            Mode::Write(writer) => {
                let mine = Manifest {
                    number: self.at,
                    epoch: newest.epoch + 1,
                    writer: writer.id,
                    is_open: true,
                    owes: false,
                    written: writer.now,
                    host: writer.host.clone(),
                    holder: writer.holder,
                    ..newest
                };
                let body = Arc::new(mine.encode());
                self.step = Step::Fencing(Box::new(mine), Arc::clone(&body));
                let name = Name::Manifest(self.at);
                self.ask(|token| Effect::Put { token, name, body, create: true, attempt: 0 }, fx);
            }
            _ => self.load(newest, fx),
        }
        None
    }

    fn fenced(
        &mut self,
        mine: Box<Manifest>,
        body: Arc<Vec<u8>>,
        answer: Result<Answer, Fault>,
        fx: &mut Vec<Effect>,
    ) -> Option<Result<Box<Volume>, OpenFault>> {
        if answer.is_ok() {
            self.check(mine, fx);
            return None;
        }
        self.step = Step::Confirming(mine, body);
        let key = Key::from(Name::Manifest(self.at));
        self.ask(|token| Effect::Get { token, key, range: None, pages: Vec::new(), attempt: 0 }, fx);
        None
    }

    fn confirmed(
        &mut self,
        mine: Box<Manifest>,
        body: Arc<Vec<u8>>,
        answer: Result<Answer, Fault>,
        fx: &mut Vec<Effect>,
    ) -> Option<Result<Box<Volume>, OpenFault>> {
        match &answer {
            Ok(Answer::Bytes(bytes)) if *bytes == *body => {
                self.check(mine, fx);
                None
            }
            Ok(_) => {
                self.step = Step::Probing;
                self.probed(answer, fx)
            }
            // It is taken and absent: asked for again, until the store makes up its mind.
            Err(_) => {
                self.step = Step::Fencing(mine, Arc::clone(&body));
                let name = Name::Manifest(self.at);
                self.ask(|token| Effect::Put { token, name, body, create: true, attempt: 1 }, fx);
                None
            }
        }
    }

    fn check(&mut self, mine: Box<Manifest>, fx: &mut Vec<Effect>) {
        self.step = Step::Checking(mine);
        self.ask(|token| Effect::List { token, attempt: 0 }, fx);
    }

    fn checked(
        &mut self,
        mine: Manifest,
        answer: Result<Answer, Fault>,
        fx: &mut Vec<Effect>,
    ) -> Option<Result<Box<Volume>, OpenFault>> {
        let is_newer = |number: &u64| *number > mine.number;
        match answer {
            Ok(Answer::Numbers(numbers)) if numbers.iter().any(is_newer) => {
                self.newest = None;
                self.passed.clear();
                self.listed(Ok(Answer::Numbers(numbers)), fx)
            }
            _ => {
                self.load(mine, fx);
                None
            }
        }
    }

    fn load(&mut self, manifest: Manifest, fx: &mut Vec<Effect>) {
        // Whoever reads beside a writer may find that the writer has deleted what it needs.
        let is_lenient = self.mode != Mode::Read || self.restarts >= RESTARTS_MAX;
        let loading = Loading::new(manifest, self.options.map_bytes, is_lenient, self.tokens, fx);
        self.step = Step::Loading(Box::new(loading));
    }

    fn volume(&mut self, loaded: Loaded) -> Box<Volume> {
        let writer = match &self.mode {
            Mode::Write(writer) => Some(writer.clone()),
            _ => None,
        };
        Box::new(Volume::new(loaded, std::mem::take(&mut self.passed), writer, self.options))
    }
}
