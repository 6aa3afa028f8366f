// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loading of a state that a manifest names. It fetches the root of the checkpoint, the pages
//! of the map, and the heads of the objects after it. Wishes that were not granted come last.

use std::collections::BTreeMap;

use crate::batch::Head;
use crate::effect::{Answer, Effect, Fault, OpenFault, Token};
use crate::manifest::{Manifest, TailEntry};
use crate::map::{Map, PagePlace};
use crate::name::{Key, Name};
use crate::root::Root;
use crate::table::{Entry, Kind, Table};
use crate::wire::crc;
use crate::wish::Wish;

/// Pages with gaps up to this size are fetched by one request.
const GAP_BYTES: u64 = 64 << 10;
/// The longest request for pages. All under way are RAM.
const PAGES_BYTES_MAX: u64 = 2 << 20;
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
    /// The head of an object of the tail.
    Head(usize),
    Wish,
}

/// A loading under way.
#[derive(Debug)]
pub(crate) struct Loading {
    manifest: Manifest,
    map: Map,
    table: Table,
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

    pub(crate) fn new(manifest: Manifest, tokens: Token, fx: &mut Vec<Effect>) -> Self {
        let heads = vec![None; manifest.tail.len()];
        let mut waiting: Vec<Want> = (0..heads.len()).map(Want::Head).rev().collect();
        waiting.push(Want::Wish);
        if manifest.checkpoint.is_some() {
            waiting.push(Want::Root);
        }
        let (map, table, asked) = (Map::default(), Table::default(), BTreeMap::new());
        let mut loading = Self { manifest, map, table, heads, waiting, asked, wishes_read: false, tokens };
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
            let effect = Effect::Get { token: self.tokens, key, range, attempt: 0 };
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
            Want::Pages(pages) => {
                let (from, to) = span(pages);
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
                if let Some((number, _)) = root.pages.iter().find(|(_, place)| !self.table.use_of(place.object, 0)) {
                    return Err(wrong(&format!("its root places page {number} in an unknown object")));
                }
                self.waiting.extend(parts(root.pages).into_iter().map(Want::Pages));
            }
            Want::Pages(pages) => {
                let (from, _) = span(&pages);
                for (number, place) in pages {
                    let page = usize::try_from(place.at - from).ok().and_then(|at| bytes.get(at..));
                    let page = page.and_then(|page| page.get(..place.bytes as usize));
                    let page = page.filter(|page| crc(&[page]) == place.crc);
                    let page = page.ok_or_else(|| wrong(&format!("the checksum of page {number} is wrong")))?;
                    let table = &mut self.table;
                    self.map
                        .load(number, place, page, |object, sectors| table.use_of(object, sectors))
                        .map_err(|what| wrong(&what))?;
                    self.table.use_of(place.object, place.bytes.into());
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

    /// Applies the tail, in its order.
    fn finish(&mut self) -> Result<Loaded, OpenFault> {
        debug_assert!(self.wishes_read, "bug: the last wish was absent");
        for (tail, head) in self.manifest.tail.iter().zip(&self.heads) {
            let head = head.as_ref().expect("bug: a head was not waited for");
            let TailEntry { stamp, head: head_bytes, bytes, born } = *tail;
            let content = if head.is_framed { head.content() } else { 0 };
            let kind = Kind::Data;
            let entry = Entry { kind, source: None, stamp, head: head_bytes, bytes, born, live: 0, content };
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
        let (map, table) = (std::mem::take(&mut self.map), std::mem::take(&mut self.table));
        Ok(Loaded { manifest: self.manifest.clone(), map, table, tokens: self.tokens() })
    }
}

fn name_of(effect: &Effect) -> Name {
    match effect {
        Effect::Get { key, .. } => key.name,
        _ => Name::Manifest(0),
    }
}

/// First byte of some pages of an object, which are sorted, and the end of the last.
fn span(pages: &[(u64, PagePlace)]) -> (u64, u64) {
    let from = pages.first().map_or(0, |(_, place)| place.at);
    let to = pages.last().map_or(0, |(_, place)| place.at + u64::from(place.bytes));
    (from, to)
}

/// Cuts pages into parts that one request each can fetch.
fn parts(mut pages: Vec<(u64, PagePlace)>) -> Vec<Vec<(u64, PagePlace)>> {
    pages.sort_by_key(|(_, place)| (place.object, place.at));
    let mut parts: Vec<Vec<(u64, PagePlace)>> = Vec::new();
    for page in pages {
        if let Some(part) = parts.last_mut() {
            let (from, to) = span(part);
            let is_near = part[0].1.object == page.1.object && page.1.at <= to + GAP_BYTES;
            if is_near && page.1.at + u64::from(page.1.bytes) - from <= PAGES_BYTES_MAX {
                part.push(page);
                continue;
            }
        }
        parts.push(vec![page]);
    }
    parts
}
