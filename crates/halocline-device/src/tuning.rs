//! What was measured of a kind of GPU, and decides how copies are cut and which way they take.
//!
//! Everything here is a matter of speed alone: with any values within their bounds an exchange is right.

use serde_json::{Map, Value, json};
use std::fmt;
use std::path::PathBuf;

/// How one device reaches the memory of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Connection {
    /// It is its own.
    SameDevice,
    /// Over NVLink: it does atomic operations there.
    NvLink,
    /// Over PCIe.
    Pcie,
}

impl Connection {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::SameDevice, Self::NvLink, Self::Pcie];
}

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SameDevice => "same device",
            Self::NvLink => "NVLink",
            Self::Pcie => "PCIe",
        })
    }
}

/// The values that code depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Of a hundred multiprocessors, how many have a block of those that wait for peers and then write to them: the rest is left to
    /// the copies within the rank, and to whatever else runs there. 1 to 70 (all objects of a process together have 80).
    pub waiting: u32,
    /// Of a hundred multiprocessors, how many have a block of those that copy within the rank while other work may run beside the exchange, and at
    /// most of those that wait: it takes longer then, and leaves room ([`TablePart::beside`](crate::TablePart::beside)). 1 to 1600.
    pub beside: u32,
    /// Accesses of one item, at most: what a block of threads does at a time. 512 to 65,536.
    pub item: u32,
    /// Items for each multiprocessor, where there is little to copy. 1 to 16.
    pub items: u32,
    /// Accesses up to which a part of one region has one block: to have others help and be counted takes longer. 0 to 65,536.
    pub alone: u32,
    /// From how many contiguous bytes on a region goes by a copy engine, over each kind of [`Connection`], in the order of
    /// [`Connection::ALL`]; none: never. At least [`LEAST_ENGINE`].
    pub copy_engine: [Option<u64>; 3],
    /// Up to how many bytes a message between devices goes as words with flags ([`Slot`](crate::Slot)); 0: none. At most 1 MiB.
    pub flags: u32,
    /// Bytes of a message staged through memory of the host that are worth a message of their own. 64 KiB to 1 GiB.
    pub chunk: u64,
}

impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { waiting, beside, item, items, alone, copy_engine: _, flags, chunk } = *self;
        write!(
            f,
            "waiting {waiting}, beside {beside}, item {item}, items {items}, alone {alone}, copy engine"
        )?;
        let engines = Connection::ALL.map(|over| (over, self.copy_engine(over)));
        if engines.iter().all(|(_, from)| from.is_none()) {
            write!(f, " never")?;
        }
        for (over, from) in engines.iter().filter_map(|&(over, from)| Some((over, from?))) {
            write!(f, " over {over} from {from} bytes on")?;
        }
        match flags {
            0 => write!(f, ", flags never")?,
            most => write!(f, ", flags up to {most} bytes")?,
        }
        write!(f, ", chunk {chunk}")
    }
}

/// Bytes below which no copy engine is worth its launch, on any machine: 64 KiB.
pub const LEAST_ENGINE: u64 = 64 << 10;

impl Tuning {
    /// Of GPUs of compute capability 9.0 (H100, H200), chosen on H200s with NVLink; of `item` and `chunk` others were tried, too. The copy engine is not
    /// used until `halocline bench tune` has found that it pays: alone it takes 6% less than stores at 64 MiB, but it does not
    /// wait for peers by itself, and exchanges by it took as long there and longer below. Words with flags are
    /// a twentieth faster up to 2 KiB, and not from 8 KiB on.
    pub const HOPPER: Self = Self {
        waiting: 60,
        beside: 50,
        item: 4096,
        items: 2,
        alone: 1024,
        copy_engine: [None; 3],
        flags: 2048,
        chunk: 4 << 20,
    };

    /// Of GPUs that nobody has measured: as those of [`Tuning::HOPPER`].
    pub const OTHER: Self = Self::HOPPER;

    /// From how many contiguous bytes on a region goes by a copy engine.
    pub fn copy_engine(&self, over: Connection) -> Option<u64> {
        self.copy_engine[over as usize]
    }

    /// The value that is out of its bounds, if one is: its name, and what is allowed.
    pub fn out_of_bounds(&self) -> Option<&'static str> {
        let Self { waiting, beside, item, items, alone, copy_engine, flags, chunk } = *self;
        let engines = copy_engine.iter().flatten().all(|&bytes| bytes >= LEAST_ENGINE);
        [
            ((1..=70).contains(&waiting), "waiting is a share of the multiprocessors, 1 to 70 of a hundred"),
            (
                (1..=1600).contains(&beside),
                "beside is a share of the multiprocessors, 1 to 1600 of a hundred",
            ),
            ((512..=65_536).contains(&item), "item is 512 to 65536 accesses"),
            ((1..=16).contains(&items), "items is 1 to 16 for each multiprocessor"),
            (alone <= 65_536, "alone is at most 65536 accesses"),
            (engines, "copy_engine is null, or at least 65536 bytes"),
            (flags <= 1 << 20, "flags is at most 1 MiB"),
            ((64 << 10..=1 << 30).contains(&chunk), "chunk is 64 KiB to 1 GiB"),
        ]
        .into_iter()
        .find_map(|(is_fine, what)| (!is_fine).then_some(what))
    }
}

/// What values were measured of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// What its maker calls the GPU.
    pub gpu: String,
    /// The newest CUDA that the driver knows: "13.0".
    pub driver: String,
    /// Number of multiprocessors: slices of a GPU have fewer.
    pub multiprocessors: u32,
}

/// The first words of a file of values.
const FORMAT: &str = "tuning 3";

impl Machine {
    /// Values of this machine as the text of a file.
    pub fn write(&self, values: &Tuning) -> String {
        let Tuning { waiting, beside, item, items, alone, copy_engine: _, flags, chunk } = *values;
        let engines = Connection::ALL.map(|over| (over.to_string(), json!(values.copy_engine(over))));
        let engines: Map<String, Value> = engines.into_iter().collect();
        let text = json!({
            "halocline": FORMAT,
            "gpu": self.gpu,
            "driver": self.driver,
            "multiprocessors": self.multiprocessors,
            "waiting": waiting,
            "beside": beside,
            "item": item,
            "items": items,
            "alone": alone,
            "copy_engine": engines,
            "flags": flags,
            "chunk": chunk,
        });
        format!("{text:#}\n")
    }

    /// The values in such a text; otherwise says why they are not taken: it is cut, of another machine, or a value is missing or out of
    /// its bounds.
    pub fn read(&self, text: &[u8]) -> Result<Tuning, String> {
        let all: Value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let is = |name: &str, expected: &Value| match all.get(name) {
            Some(found) if found == expected => Ok(()),
            Some(found) => Err(format!("its {name} is {found}, here it is {expected}")),
            None => Err(format!("it has no {name}")),
        };
        is("halocline", &json!(FORMAT))?;
        is("gpu", &json!(self.gpu))?;
        is("driver", &json!(self.driver))?;
        is("multiprocessors", &json!(self.multiprocessors))?;
        let number = |name: &str| {
            let found = all.get(name).ok_or_else(|| format!("it has no {name}"))?;
            found.as_u64().ok_or_else(|| format!("its {name} is {found}, which is no number of this kind"))
        };
        // What does not fit is out of bounds, too.
        let small = |name: &str| Ok::<_, String>(u32::try_from(number(name)?).unwrap_or(u32::MAX));
        let mut copy_engine = [None; 3];
        let engines = all.get("copy_engine").ok_or("it has no copy_engine")?;
        for over in Connection::ALL {
            let found = engines.get(over.to_string());
            copy_engine[over as usize] =
                match found.ok_or_else(|| format!("its copy_engine says nothing over {over}"))? {
                    Value::Null => None,
                    found => Some(
                        found.as_u64().ok_or_else(|| format!("its copy_engine over {over} is {found}"))?,
                    ),
                };
        }
        let values = Tuning {
            waiting: small("waiting")?,
            beside: small("beside")?,
            item: small("item")?,
            items: small("items")?,
            alone: small("alone")?,
            copy_engine,
            flags: small("flags")?,
            chunk: number("chunk")?,
        };
        values.out_of_bounds().map_or(Ok(values), |what| Err(what.to_owned()))
    }
}

/// Values in force, and where they are from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tuned {
    /// The values.
    pub values: Tuning,
    /// Where they are from.
    pub origin: Origin,
}

/// Where values are from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// They come with the library: of what.
    BuiltIn(&'static str),
    /// They were measured here, and are kept in a file.
    File(PathBuf),
    /// They come with the library, since a file that is there is not taken.
    Refused {
        /// Of what they are.
        built_in: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it is not taken.
        why: String,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn(of) => write!(f, "built-in, of {of}"),
            Self::File(path) => write!(f, "from {}", path.display()),
            Self::Refused { built_in, path, why } => {
                write!(f, "built-in, of {built_in}: {} is not taken: {why}", path.display())
            }
        }
    }
}

impl Tuned {
    /// What comes with the library for a compute capability (90 for 9.0).
    pub fn built_in(capability: u32) -> Self {
        match capability {
            90 => Self { values: Tuning::HOPPER, origin: Origin::BuiltIn("H100 and H200") },
            _ => Self { values: Tuning::OTHER, origin: Origin::BuiltIn("GPUs that were not measured") },
        }
    }

    /// What comes with the library for devices that are no GPUs.
    pub fn simulated() -> Self {
        // What exchanges by words with flags there asks for them.
        let values = Tuning { flags: 0, ..Tuning::OTHER };
        Self { values, origin: Origin::BuiltIn("simulated devices") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_values_are_within_their_bounds_and_others_are_told_by_name() {
        assert_eq!(Tuning::HOPPER.out_of_bounds(), None);
        assert_eq!(Tuning::OTHER.out_of_bounds(), None);
        let with = |change: fn(&mut Tuning)| {
            let mut values = Tuning::HOPPER;
            change(&mut values);
            values.out_of_bounds().unwrap_or_default().split(' ').next().unwrap_or_default()
        };
        assert_eq!(with(|values| values.waiting = 0), "waiting");
        assert_eq!(with(|values| values.waiting = 71), "waiting");
        assert_eq!(with(|values| values.beside = 0), "beside");
        assert_eq!(with(|values| values.item = 511), "item");
        assert_eq!(with(|values| values.items = 0), "items");
        assert_eq!(with(|values| values.alone = 65_537), "alone");
        assert_eq!(with(|values| values.copy_engine[1] = Some(65_535)), "copy_engine");
        assert_eq!(with(|values| values.flags = (1 << 20) + 1), "flags");
        assert_eq!(with(|values| values.chunk = u64::MAX), "chunk");
    }

    fn machine() -> Machine {
        Machine { gpu: "A \"GPU\"".to_owned(), driver: "13.0".to_owned(), multiprocessors: 132 }
    }

    #[test]
    fn values_that_were_written_are_read_again() {
        let copy_engine = [None, Some(1 << 25), Some(u64::MAX)];
        let values = Tuning {
            waiting: 30,
            beside: 20,
            item: 8192,
            items: 1,
            alone: 0,
            copy_engine,
            flags: 64,
            chunk: 1 << 20,
        };
        assert_eq!(machine().read(machine().write(&values).as_bytes()), Ok(values));
    }

    #[test]
    fn a_text_that_is_cut_foreign_or_forged_is_refused_with_the_reason() {
        let text = machine().write(&Tuning::HOPPER);
        for end in 0..text.trim_end().len() {
            assert!(machine().read(&text.as_bytes()[..end]).is_err(), "{end} bytes");
        }
        let refused = |from: &str, to: &str| {
            assert!(text.contains(from), "{from} in {text}");
            machine().read(text.replace(from, to).as_bytes()).expect_err(to)
        };
        assert_eq!(refused("tuning 3", "tuning 2"), "its halocline is \"tuning 2\", here it is \"tuning 3\"");
        assert_eq!(refused("13.0", "12.4"), "its driver is \"12.4\", here it is \"13.0\"");
        assert_eq!(refused("132", "131"), "its multiprocessors is 131, here it is 132");
        assert_eq!(refused("\"items\"", "\"itens\""), "it has no items");
        assert_eq!(
            refused("\"waiting\": 60", "\"waiting\": -1"),
            "its waiting is -1, which is no number of this kind"
        );
        assert!(refused("4194304", "1e999").starts_with("number out of range"));
        assert!(refused("4194304", "18446744073709551615").starts_with("chunk is"));
        assert!(refused("\"item\": 4096", "\"item\": 4294971392").starts_with("item is"));
        assert!(refused("\"NVLink\": null", "\"NVLink\": \"1M\"").starts_with("its copy_engine over NVLink"));
        assert!(refused("\"NVLink\": null", "\"NVLink\": 7").starts_with("copy_engine is"));
        assert_eq!(
            refused("\"NVLink\": null", "\"NVlink\": 65536"),
            "its copy_engine says nothing over NVLink"
        );
        for text in ["", "[]", "null", "{}", "{\"halocline\": {}}"] {
            assert!(machine().read(text.as_bytes()).is_err(), "{text}");
        }
        let deep = "[".repeat(1 << 20);
        assert!(machine().read(deep.as_bytes()).is_err());
    }

    #[test]
    fn values_are_told_in_words() {
        assert_eq!(
            Tuning::HOPPER.to_string(),
            "waiting 60, beside 50, item 4096, items 2, alone 1024, copy engine never, flags up to 2048 bytes, chunk 4194304"
        );
        let values = Tuning { copy_engine: [None, Some(1 << 20), Some(1 << 22)], flags: 8, ..Tuning::HOPPER };
        assert!(values.to_string().contains("flags up to 8 bytes,"));
        assert!(
            values
                .to_string()
                .contains("copy engine over NVLink from 1048576 bytes on over PCIe from 4194304 bytes on,")
        );
    }

    #[test]
    fn each_connection_has_a_value_of_its_own() {
        let values = Tuning { copy_engine: [None, Some(1 << 20), Some(1 << 22)], ..Tuning::HOPPER };
        let of = Connection::ALL.map(|over| values.copy_engine(over));
        assert_eq!(of, [None, Some(1 << 20), Some(1 << 22)]);
    }
}
