//! Measures a bind of device fields between two processes beside the mapping calls that it needs, made by hand.

use crate::device_fixtures::{DeviceFixture, Rig};
use crate::{Outcome, Trouble, ensure};
use halocline::device::{Memory, Priority};
use halocline::{BindOptions, Communicator, Device, HaloExchange, LinkPath};
use halocline_comm::mappings::{Allocation, DeviceId, Kind, Mappings, Provider, Refusal};
use halocline_device::remote::Export;
use rustix::fd::{AsRawFd, OwnedFd};
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::sync::Arc;
use std::time::Instant;

/// Fields that are bound together, each in an allocation of its own.
const FIELDS: [u64; 2] = [1, 8];

/// The bar: so many times the opens by hand, and so many microseconds more.
const BAR: (f64, f64) = (1.5, 5_000.0);

/// Prints a row for each number of fields, of medians of so many repeats, each the slower rank's; `edge` cells along each of three axes of a
/// rank. Collective.
///
/// | column | what |
/// | --- | --- |
/// | opens | that the bind makes at each side: of fields that no rank has mapped, and of flags |
/// | raw opens | so many fresh allocations, of the same length where they are fields, exported and opened through the same provider |
/// | bind cold | the bind |
/// | opens, bind warm | the same of a bind of the same fields once more, after the first object was dropped |
pub fn rank<R: Rig>(comm: &Communicator, device: &Device, edge: usize, repeats: usize) -> Outcome {
    ensure!(comm.size() == 2 && repeats > 0, "two ranks, each a process, and one repeat or more");
    let provider = device.driver().provider()?.ok_or_else(|| Trouble::new("memory that others can map"))?;
    let costs = Costs { comm, device, provider, mappings: Mappings::of(comm), edge };
    // Modules are loaded, and devices given access to each other, only once.
    let fixture = costs.fixture(1)?;
    let (first, bound) = costs.timed(|| costs.bind(&fixture))?;
    drop((bound, fixture));
    costs.say(&format!("the first bind of the processes, with all that is loaded for it: {first:.0} us"));
    costs.say(
        "fields | opens | raw opens us | bind cold us | bar (1.5 x raw + 5 ms) us |        | opens | bind warm us",
    );
    for fields in FIELDS {
        let rows = (0..repeats).map(|_| costs.row::<R>(fields)).collect::<Result<Vec<_>, _>>()?;
        let [raw, cold, warm] = [0, 1, 2].map(|at| median(rows.iter().map(|row| row.times[at]).collect()));
        let [opens, again] = [0, 1].map(|at| rows.iter().map(|row| row.opens[at]).max().unwrap_or_default());
        let bar = BAR.0 * raw + BAR.1;
        let met = if cold <= bar { "met" } else { "MISSED" };
        costs.say(&format!(
            "{fields:>6} | {opens:>5} | {raw:>12.0} | {cold:>12.0} | {bar:>26.0} | {met:<6} | {again:>5} | {warm:>12.0}"
        ));
    }
    Ok(comm.barrier()?)
}

/// The median of some times.
fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

struct Costs<'a> {
    comm: &'a Communicator,
    device: &'a Device,
    provider: Arc<dyn Provider>,
    mappings: Mappings,
    edge: usize,
}

struct Row {
    /// Raw opens, cold bind, warm bind, in microseconds.
    times: [f64; 3],
    /// Of the cold bind, and of the warm one.
    opens: [u64; 2],
}

impl Costs<'_> {
    fn say(&self, line: &str) {
        if self.comm.rank() == 0 {
            println!("{line}");
        }
    }

    /// What something takes that both ranks begin together: the slower one's microseconds. Collective.
    fn timed<T>(&self, what: impl FnOnce() -> Result<T, Trouble>) -> Result<(f64, T), Trouble> {
        self.comm.barrier()?;
        let begin = Instant::now();
        let made = what()?;
        let own = begin.elapsed().as_secs_f64() * 1e6;
        let all = self.comm.all_gather(&own.to_le_bytes())?;
        let times = all.iter().filter_map(|bytes| bytes[..].try_into().ok()).map(f64::from_le_bytes);
        Ok((times.fold(own, f64::max), made))
    }

    fn fixture(&self, fields: u64) -> Result<DeviceFixture, Trouble> {
        DeviceFixture::new(self.comm, &[2 * self.edge, self.edge, self.edge], (1, 1, fields), |_| self.device)
    }

    fn bind(&self, fixture: &DeviceFixture) -> Result<HaloExchange, Trouble> {
        let fields: Vec<usize> = (0..fixture.pieces.len()).collect();
        Ok(fixture.bind(self.comm, &[&fields], &BindOptions::default())?)
    }

    /// A cold bind and a warm one, then the opens of the cold one by hand.
    fn row<R: Rig>(&self, fields: u64) -> Result<Row, Trouble> {
        let (rig, fixture) = (R::get()?, self.fixture(fields)?);
        let all: Vec<usize> = (0..fixture.pieces.len()).collect();
        let stream = self.device.stream(Priority::Normal)?;
        let (mut times, mut opens) = ([0.0; 3], [0; 2]);
        for at in 0..2 {
            let before = self.mappings.stats();
            let (time, halo) = self.timed(|| self.bind(&fixture))?;
            (times[1 + at], opens[at]) = (time, self.mappings.stats().opens - before.opens);
            let is_direct =
                halo.links().all(|link| matches!(link.path, LinkPath::Push | LinkPath::Pull | LinkPath::Ll));
            ensure!(is_direct, "not all memory is mapped:\n{}", halo.explain());
            let step = 1 + at as u64;
            fixture.produce(rig, &all, &stream, step)?;
            halo.schedule_exchange(&[&stream])?.schedule_wait(&stream)?;
            fixture.consume(rig, &all, &stream, step)?;
            stream.synchronise()?;
            halo.wait()?;
            rig.check()?;
            self.comm.barrier()?;
        }
        ensure!(opens[0] >= fields, "{} opens of {fields} fields and words", opens[0]);
        ensure!(opens[1] + fields <= opens[0], "fields are opened again: {opens:?}");
        let bytes = fixture.pieces[0][0].array().len() * size_of::<u64>();
        drop(fixture);
        // Of words the library allocates little.
        let lengths = (0..opens[0]).map(|at| if at < fields { bytes } else { 4096 });
        let memories = lengths.map(|bytes| self.device.allocate(bytes)).collect::<Result<Vec<_>, _>>()?;
        times[0] = self.by_hand(&memories)?;
        Ok(Row { times, opens })
    }

    /// Exports memories and opens the peer's, without anything else: the time of both, without the messages between them.
    fn by_hand(&self, memories: &[Memory]) -> Result<f64, Trouble> {
        let refused = |why: Refusal| Trouble::new(why.to_string());
        let find = |memory: &Memory| {
            let found = self.provider.find(memory.at(0), memory.place().bytes as u64);
            found.ok_or_else(|| Trouble::new("memory of the device"))
        };
        let found = memories.iter().map(find).collect::<Result<Vec<Allocation>, Trouble>>()?;
        let export = |of: &Allocation| Ok((*of, self.provider.export(of).map_err(refused)?));
        let (exporting, own) =
            self.timed(|| found.iter().map(export).collect::<Result<Vec<(Allocation, Export)>, Trouble>>())?;
        let sent = Value::Array(own.iter().map(describe).collect()).to_string();
        let sent = self.comm.all_gather(sent.as_bytes())?;
        let sent: Value = serde_json::from_slice(&sent[1 - self.comm.rank()])?;
        let kind = own.first().map(|(allocation, _)| allocation.kind);
        let sent = sent.as_array().into_iter().flatten();
        let theirs = sent.map(|one| parse(one, kind)).collect::<Result<Vec<_>, Trouble>>()?;
        let (opening, opened) = self.timed(|| {
            let open = |(allocation, export)| self.provider.open(&allocation, export).map_err(refused);
            theirs.into_iter().map(open).collect::<Result<Vec<_>, Trouble>>()
        })?;
        self.comm.barrier()?;
        for one in opened {
            // SAFETY: this provider has opened it just now, and nothing has used it.
            unsafe { self.provider.close(one) }.map_err(refused)?;
        }
        self.comm.barrier()?;
        Ok(exporting + opening)
    }
}

/// The description of an export that is sent to the other process. Its descriptors are files, which it opens itself.
fn describe((allocation, export): &(Allocation, Export)) -> Value {
    let path = |fd: &OwnedFd| format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd());
    let Allocation { base, bytes, id, device, .. } = allocation;
    let files: Vec<String> = export.descriptors.iter().map(path).collect();
    json!({ "memory": [base, bytes, id], "device": device.0, "handle": export.handle, "files": files })
}

/// The inverse of [`describe`]; memory of the kind that this process has itself.
fn parse(sent: &Value, kind: Option<Kind>) -> Result<(Allocation, Export), Trouble> {
    let list = |name: &str| sent[name].as_array().into_iter().flatten();
    let bytes = |name| list(name).filter_map(|byte| u8::try_from(byte.as_u64()?).ok()).collect::<Vec<u8>>();
    let memory: Vec<u64> = list("memory").filter_map(Value::as_u64).collect();
    let (&[base, bytes_long, id], Ok(device), Some(kind)) = (&memory[..], bytes("device").try_into(), kind)
    else {
        return Err(Trouble::new(format!("no export: {sent}")));
    };
    let open =
        |path: &Value| OpenOptions::new().read(true).write(true).open(path.as_str().unwrap_or_default());
    let descriptors = list("files").map(|path| open(path).map(OwnedFd::from));
    let export = Export { handle: bytes("handle"), descriptors: descriptors.collect::<Result<_, _>>()? };
    Ok((Allocation { base, bytes: bytes_long, id, device: DeviceId(device), kind }, export))
}
