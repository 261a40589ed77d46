//! The key of a build: a hash of everything that decides its result.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The name of an entry: a hash of everything that decides the result of a build.
///
/// ```
/// use halocline_program::cache::Key;
///
/// let key = Key::of("heat")
///     .part("source", "void heat(double *t) {}")
///     .part("compiler", "/usr/bin/cc, gcc 12.2.0")
///     .part("flags", "-O3 -shared -fPIC")
///     .part("target", "x86-64-v3, sm_90")
///     .finish();
/// assert_eq!(key.program(), "heat");
/// ```
///
/// The target architecture is a part too: the process that starts the build knows it, and a compiler on another node must not guess it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    pub(super) hash: Hash,
    pub(super) program: Box<str>,
    pub(super) parts: Vec<Part>,
}

/// One thing that decides the result.
///
/// ```
/// use halocline_program::cache::Part;
///
/// # let (_folder, _, entry) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc/cache.rs"));
/// // `entry` is what `Cache::get_or_build` has returned.
/// let flags: &Part = &entry.record().parts[0];
/// assert_eq!(&*flags.name, "flags");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Its name.
    pub name: Box<str>,
    /// The BLAKE3 hash of its bytes.
    pub hash: Hash,
}

/// A BLAKE3 hash, 64 hexadecimal digits as text.
///
/// ```
/// use halocline_program::cache::{Hash, Key};
///
/// let hash = Key::of("heat").part("flags", "-O3").finish().hash();
/// assert_eq!(Hash::from_hex(&hash.to_string()), Some(hash));
/// assert_eq!(Hash::from_hex("no hash"), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash(pub(super) [u8; 32]);

impl Hash {
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// From 64 hexadecimal digits in lower case.
    pub fn from_hex(text: &str) -> Option<Self> {
        let hash = blake3::Hash::from_hex(text).ok()?;
        (hash.to_hex().as_str() == text).then_some(Self(*hash.as_bytes()))
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Hash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::from_hex(&text)
            .ok_or_else(|| serde::de::Error::custom("a hash has 64 hexadecimal digits in lower case"))
    }
}

impl Key {
    /// Begins the key of a program. The name is a part of the key, and listings show it.
    pub fn of(program: &str) -> KeyBuilder {
        let mut hasher = blake3::Hasher::new_derive_key("halocline program cache, format 1");
        update(&mut hasher, program.as_bytes());
        KeyBuilder { hasher, program: program.into(), parts: Vec::new() }
    }

    /// The name of the program.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// The hash of all parts.
    pub fn hash(&self) -> Hash {
        self.hash
    }
}

/// A key whose parts are being added. Their order counts.
///
/// ```
/// use halocline_program::cache::{Key, KeyBuilder};
///
/// let mut key: KeyBuilder = Key::of("heat");
/// for flag in ["-O3", "-fPIC"] {
///     key = key.part("flag", flag);
/// }
/// assert_eq!(key.finish(), Key::of("heat").part("flag", "-O3").part("flag", "-fPIC").finish());
/// ```
#[derive(Clone, Debug)]
pub struct KeyBuilder {
    hasher: blake3::Hasher,
    program: Box<str>,
    parts: Vec<Part>,
}

impl KeyBuilder {
    /// Adds a part: bytes that decide the result, under a name for people.
    #[must_use]
    pub fn part(mut self, name: &str, bytes: impl AsRef<[u8]>) -> Self {
        let bytes = bytes.as_ref();
        update(&mut self.hasher, name.as_bytes());
        update(&mut self.hasher, bytes);
        self.parts.push(Part { name: name.into(), hash: Hash::of(bytes) });
        self
    }

    /// The key of the parts so far.
    pub fn finish(self) -> Key {
        Key { hash: Hash(*self.hasher.finalize().as_bytes()), program: self.program, parts: self.parts }
    }
}

/// Adds bytes with their length, so that no two lists of parts give the same bytes.
fn update(hasher: &mut blake3::Hasher, bytes: &[u8]) {
    hasher.update(&(bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_part_its_name_and_its_place_decide_the_key() {
        let keys = [
            Key::of("heat").finish(),
            Key::of("heat2").finish(),
            Key::of("heat").part("flags", "-O2").finish(),
            Key::of("heat").part("flags", "-O3").finish(),
            Key::of("heat").part("target", "-O3").finish(),
            Key::of("heat").part("flags", "-O3").part("target", "").finish(),
            Key::of("heat").part("flags", "").part("target", "-O3").finish(),
            Key::of("heat").part("target", "-O3").part("flags", "").finish(),
            Key::of("heat").part("fl", "ags-O3").finish(),
        ];
        let hashes: BTreeSet<Hash> = keys.iter().map(Key::hash).collect();
        assert_eq!(hashes.len(), keys.len());
        assert_eq!(Key::of("heat").part("flags", "-O3").finish(), keys[3]);
    }

    #[test]
    fn a_hash_is_read_from_its_own_text_alone() {
        let hash = Hash::of(b"something");
        assert_eq!(Hash::from_hex(&hash.to_string()), Some(hash));
        for text in ["", "0", &hash.to_string()[1..], &hash.to_string().to_uppercase(), &format!("{hash}0")] {
            assert_eq!(Hash::from_hex(text), None, "{text}");
        }
    }
}
