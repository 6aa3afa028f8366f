// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loading of a state that a manifest names. It fetches the root of the checkpoint, the pages
//! of the map if they are few, and the heads of the objects after it. Wishes that were not granted
//! come last.

use std::collections::BTreeMap;

use crate::batch::Head;
use crate::effect::{Answer, Effect, Fault, OpenFault, Token};
use crate::manifest::{Manifest, TailEntry};
use crate::map::Map;
use crate::name::{Key, Name};
use crate::near;
use crate::pages;
use crate::place::PagePlace;
use crate::root::Root;
use crate::table::{Counted, Entry, Kind, Table};
use crate::wire::crc;
use crate::wish::Wish;

/// Requests at a time.
const REQUESTS: usize = 16;

/// A state that was loaded.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) manifest: Manifest,
    pub(crate) map: Map,
    pub(crate) table: Table,
    /// Next free token.
    pub(crate) tokens: Token,
}

#[derive(Clone, Debug)]
enum Want {
    Root,
    /// Pages of one object, sorted by their places: number and place.
    Pages(Vec<(u64, PagePlace)>),
    /// Changes beside pages that could not be had, in the same way.
    Changes(Vec<(u64, PagePlace)>),
    /// The head of an object of the tail.
    Head(usize),
    Wish,
}

/// A loading under way.
#[derive(Debug)]
pub(crate) struct Loading {
    /// A larger map stays in the store, and its pages are fetched when somebody needs them.
    map_bytes_max: usize,
    manifest: Manifest,
    map: Map,
    table: Table,
    /// The uses of objects as the root has them, if they are counted anew.
    uses: Option<BTreeMap<u32, u64>>,
    /// Damaged pages are left to the store. Whoever needs them finds out.
    is_lenient: bool,
    is_damaged: bool,
    heads: Vec<Option<Head>>,
    waiting: Vec<Want>,
    asked: BTreeMap<Token, (Want, Effect)>,
    wishes_read: bool,
    tokens: Token,
}

impl Loading {
    pub(crate) const fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Next free token.
    pub(crate) const fn tokens(&self) -> Token {
        self.tokens + 1
    }

    pub(crate) fn new(
        manifest: Manifest,
        map_bytes_max: usize,
        is_lenient: bool,
        tokens: Token,
        fx: &mut Vec<Effect>,
    ) -> Self {
        let heads = vec![None; manifest.tail.len()];
        let mut waiting: Vec<Want> = (0..heads.len()).map(Want::Head).rev().collect();
        waiting.push(Want::Wish);
        if manifest.checkpoint.is_some() {
            waiting.push(Want::Root);
        }
        let (map, table, asked) = (Map::new(map_bytes_max), Table::default(), BTreeMap::new());
        let mut loading = Self {
            map_bytes_max,
            manifest,
            map,
            table,
            uses: None,
            is_lenient,
            is_damaged: false,
            heads,
            waiting,
            asked,
            wishes_read: false,
            tokens,
        };
        loading.go_on(fx);
        loading
    }

    /// Takes an answer; the state, or why there is none, once that is known.
    pub(crate) fn done(
        &mut self,
        token: Token,
        answer: Result<Answer, Fault>,
        fx: &mut Vec<Effect>,
    ) -> Option<Result<Loaded, OpenFault>> {
        let (want, effect) = self.asked.remove(&token)?;
        let taken = match answer {
            Ok(Answer::Bytes(bytes)) => self.take(want, &effect, &bytes),
            Err(Fault::Absent) if matches!(want, Want::Wish) => {
                self.wishes_read = true;
                Ok(())
            }
            Err(Fault::Absent) if matches!(want, Want::Pages(_)) && self.is_lenient => {
                self.is_damaged = true;
                Ok(())
            }
            Err(Fault::Away(_) | Fault::Refused(_)) => {
                let effect = effect.again();
                fx.push(effect.clone());
                self.asked.insert(token, (want, effect));
                return None;
            }
            _ => Err((name_of(&effect), "it is absent".to_owned())),
        };
        if let Err((name, what)) = taken {
            return Some(Err(OpenFault::Damaged { name, what }));
        }
        self.go_on(fx);
        (self.asked.is_empty() && self.waiting.is_empty()).then(|| self.finish())
    }

    fn go_on(&mut self, fx: &mut Vec<Effect>) {
        while self.asked.len() < REQUESTS
            && let Some(want) = self.waiting.pop()
        {
            let (key, range) = self.place_of(&want);
            self.tokens += 1;
            let effect = Effect::Get { token: self.tokens, key, range, pages: Vec::new(), attempt: 0 };
            fx.push(effect.clone());
            self.asked.insert(self.tokens, (want, effect));
        }
    }

    fn place_of(&self, want: &Want) -> (Key, Option<(u64, u64)>) {
        match want {
            Want::Root => {
                let checkpoint = self.manifest.checkpoint.expect("bug: a root without a checkpoint");
                let range = (checkpoint.root_at, checkpoint.root_bytes.into());
                (Name::Map(checkpoint.stamp).into(), Some(range))
            }
            Want::Pages(pages) | Want::Changes(pages) => {
                let (from, to) = near::span(pages);
                (self.table.get(pages[0].1.object).key(), Some((from, to - from)))
            }
            Want::Head(nth) => {
                let TailEntry { stamp, head, .. } = self.manifest.tail[*nth];
                (Name::Data(stamp).into(), Some((0, head.into())))
            }
            Want::Wish => (Name::Wish(self.manifest.wishes + 1).into(), None),
        }
    }

    fn take(&mut self, want: Want, effect: &Effect, bytes: &[u8]) -> Result<(), (Name, String)> {
        let wrong = |what: &str| (name_of(effect), what.to_owned());
        match want {
            Want::Root => {
                let checkpoint = self.manifest.checkpoint.expect("bug: a root without a checkpoint");
                if crc(&[bytes]) != checkpoint.root_crc {
                    return Err(wrong("the checksum of its root is wrong"));
                }
                let root = Root::decode(bytes, checkpoint.since).ok_or_else(|| wrong("its root is cut short"))?;
                self.table = root.table;
                let mut places = root.pages.iter().chain(&root.changes);
                if let Some((number, _)) = places.find(|(_, place)| !self.table.use_of(place.object, 0)) {
                    return Err(wrong(&format!("its root places page {number} in an unknown object")));
                }
                root.pages.iter().for_each(|(number, place)| self.map.note_stored(*number, *place));
                let bytes: u64 = root.pages.iter().map(|(_, place)| u64::from(place.bytes)).sum();
                if bytes <= self.map_bytes_max as u64 {
                    self.uses = Some(self.table.forget_uses());
                    self.waiting.extend(pages::requests(root.pages).into_iter().map(Want::Pages));
                }
                self.waiting.extend(pages::requests(root.changes).into_iter().map(Want::Changes));
            }
            Want::Pages(pages) => {
                for page in &pages {
                    match self.take_page(&pages, *page, bytes) {
                        Err(_) if self.is_lenient => self.is_damaged = true,
                        taken => taken.map_err(|what| wrong(&what))?,
                    }
                }
            }
            Want::Changes(pages) => {
                for (number, place) in &pages {
                    let changes = pages::page_of(&pages, (*number, *place), bytes).map_err(|what| wrong(&what))?;
                    let table = &mut self.table;
                    let loaded = match self.uses.is_some() {
                        true => {
                            table.use_of(place.object, u64::from(place.bytes));
                            self.map.load_changes(*number, *place, changes, table)
                        }
                        false => self.map.load_changes(*number, *place, changes, &mut Counted(table)),
                    };
                    loaded.map_err(|what| wrong(&what))?;
                }
            }
            Want::Head(nth) => {
                let head = Head::parse(bytes).map_err(|what| wrong(&what))?;
                if head.volume != self.manifest.volume || head.stamp != self.manifest.tail[nth].stamp {
                    return Err(wrong("it is another volume's, or another object"));
                }
                self.heads[nth] = Some(head);
            }
            Want::Wish => {
                Wish::grant(bytes, &mut self.manifest);
                self.waiting.push(Want::Wish);
            }
        }
        Ok(())
    }

    fn take_page(
        &mut self,
        pages: &[(u64, PagePlace)],
        (number, place): (u64, PagePlace),
        bytes: &[u8],
    ) -> Result<(), String> {
        let page = pages::page_of(pages, (number, place), bytes)?;
        self.map.load(number, place, page, &mut self.table)?;
        self.table.use_of(place.object, place.bytes.into());
        Ok(())
    }

    /// Applies the tail, in its order.
    fn finish(&mut self) -> Result<Loaded, OpenFault> {
        debug_assert!(self.wishes_read, "bug: the last wish was absent");
        if let Some(uses) = self.uses.take().filter(|_| self.is_damaged) {
            self.table.set_uses(&uses);
        }
        for (tail, head) in self.manifest.tail.iter().zip(&self.heads) {
            let head = head.as_ref().expect("bug: a head was not waited for");
            let TailEntry { stamp, head: head_bytes, bytes, born } = *tail;
            let content = if head.is_framed { head.content() } else { 0 };
            let kind = Kind::Data;
            let entry =
                Entry { kind, source: None, stamp, head: head_bytes, bytes, born, live: 0, covered: 0, content };
            let number = self.table.add(entry);
            for record in &head.records {
                if record.stored == 0 {
                    self.map.zero(record.start, record.sectors, &mut self.table);
                } else {
                    self.table.use_of(number, record.sectors);
                    self.map.put(number, record, &mut self.table);
                }
            }
        }
        let map = std::mem::replace(&mut self.map, Map::new(0));
        let table = std::mem::take(&mut self.table);
        Ok(Loaded { manifest: self.manifest.clone(), map, table, tokens: self.tokens() })
    }
}

fn name_of(effect: &Effect) -> Name {
    match effect {
        Effect::Get { key, .. } => key.name,
        _ => Name::Manifest(0),
    }
}
