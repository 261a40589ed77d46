//! The ocean on simulated devices, and its CUDA kernels on the CPU.

use super::super::device::{Fields, Part, Parts, Sweeper, simulate_on};
use super::super::domain::Domain;
use super::super::kernels::{SOURCE, Sea};
use super::super::verify::gather;
use super::{Prepared, initial, parts, prepared, scattered, simulate};
use crate::error::CommandError;
use crate::{on_host, ranks};
use halocline::device::sim::{Kernel, KernelMemory, Options, World};
use halocline::device::{Address, Priority, Stream};
use halocline::{DeviceError, Error, Partition};
use std::sync::Arc;

/// The host's sweeps as kernels of a simulated device. They declare the rows that they read and write.
struct Simulated {
    world: World,
    domain: Arc<Domain>,
    parts: Parts,
    temperatures: [Address; 2],
    gradient: [Address; 2],
    nodes: usize,
}

impl Simulated {
    fn rows(&self, base: Address, items: impl IntoIterator<Item = usize>) -> Vec<(Address, usize)> {
        let items: std::collections::BTreeSet<usize> = items.into_iter().collect();
        let row = 8 * self.domain.layers;
        let mut rows: Vec<(Address, usize)> = Vec::new();
        for item in items {
            let at = base + (item * row) as Address;
            match rows.last_mut() {
                Some((begin, bytes)) if *begin + *bytes as Address == at => *bytes += row,
                _ => rows.push((at, row)),
            }
        }
        rows
    }

    /// Launches a kernel that reads and writes the given rows of arrays. All other rows are NaN in the kernel.
    fn launch(
        &self,
        stream: &Stream,
        reads: Vec<(Address, usize, Vec<usize>)>,
        writes: Vec<(Address, Vec<usize>)>,
        compute: impl Fn(&Domain, Vec<Vec<f64>>) -> Vec<Vec<f64>> + Send + Sync + 'static,
    ) -> Result<(), DeviceError> {
        let mut kernel = Kernel::new("sweep");
        for (base, _, items) in &reads {
            for (at, bytes) in self.rows(*base, items.iter().copied()) {
                kernel = kernel.reads(at, bytes);
            }
        }
        for (base, items) in &writes {
            for (at, bytes) in self.rows(*base, items.iter().copied()) {
                kernel = kernel.writes(at, bytes);
            }
        }
        let domain = Arc::clone(&self.domain);
        let body = move |memory: &mut KernelMemory<'_>| {
            let layers = domain.layers;
            let at = |base: Address, cell: usize| base + 8 * cell as Address;
            let mut array = |(base, count, items): &(Address, usize, Vec<usize>)| {
                let mut values = vec![f64::NAN; count * layers];
                for cell in items.iter().flat_map(|item| item * layers..(item + 1) * layers) {
                    values[cell] = f64::from_bits(memory.read(at(*base, cell)));
                }
                values
            };
            let arrays = reads.iter().map(&mut array).collect();
            for ((base, items), values) in writes.iter().zip(compute(&domain, arrays)) {
                for cell in items.iter().flat_map(|item| item * layers..(item + 1) * layers) {
                    memory.write(at(*base, cell), values[cell].to_bits());
                }
            }
        };
        self.world.launch(stream, kernel.body(body))
    }
}

fn numbers(items: &[u32]) -> Vec<usize> {
    items.iter().map(|&item| item as usize).collect()
}

fn distinct(items: impl Iterator<Item = usize>) -> Vec<usize> {
    items.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
}

impl Sweeper for Simulated {
    fn gradients(&self, stream: &Stream, now: usize, part: Part) -> Result<(), DeviceError> {
        let triangles = numbers(&self.parts.triangles[part as usize]);
        let corners = distinct(triangles.iter().flat_map(|&at| self.domain.triangles[at].nodes));
        let reads = vec![(self.temperatures[now], self.nodes, corners)];
        let writes = self.gradient.map(|base| (base, triangles.clone())).to_vec();
        self.launch(stream, reads, writes, |domain, arrays| {
            let zeros = || vec![0.0; domain.triangles.len() * domain.layers];
            let (mut east, mut north) = (zeros(), zeros());
            domain.gradients(&arrays[0], &mut east, &mut north);
            vec![east, north]
        })
    }

    fn advance(&self, stream: &Stream, now: usize, part: Part, seconds: f64) -> Result<(), DeviceError> {
        let nodes = numbers(&self.parts.nodes[part as usize]);
        let pairs = |&node: &usize| self.parts.begin[node] as usize..self.parts.begin[node + 1] as usize;
        let around = nodes.iter().flat_map(pairs).map(|pair| self.parts.around[pair][0] as usize);
        let around = distinct(around);
        let corners = distinct(around.iter().flat_map(|&at| self.domain.triangles[at].nodes));
        let triangles = self.domain.triangles.len();
        let mut reads = vec![(self.temperatures[now], self.nodes, corners)];
        reads.extend(self.gradient.map(|base| (base, triangles, around.clone())));
        let writes = vec![(self.temperatures[1 - now], nodes)];
        self.launch(stream, reads, writes, move |domain, arrays| {
            let mut later = vec![0.0; arrays[0].len()];
            domain.advance(seconds, &arrays[0], (&arrays[1], &arrays[2]), &mut later);
            vec![later]
        })
    }
}

#[test]
fn the_kernels_do_what_the_host_does_to_the_last_bit() {
    let Some(kernels) = on_host::Kernels::compile(SOURCE, "Sea", &["gradients", "advance"]) else { return };
    let prepared = prepared();
    let (case, layers) = (&prepared.case, prepared.case.layers());
    for (domains, domain) in parts(prepared, &scattered(case.mesh.positions.len(), 3, 5)) {
        let nodes = domains.vertices().cells();
        let mut temperature = vec![0.0; nodes.len() * layers];
        for (&node, column) in nodes.iter().zip(temperature.chunks_exact_mut(layers)) {
            case.temperature(node as usize, column);
        }
        // An exchange would fill the gradients of other ranks' triangles. Here they are arbitrary.
        let cells = domain.triangles.len() * layers;
        let anything = |seed: usize| (0..cells).map(|at| ((at * 37 + seed) % 101) as f64 * 1e-7).collect();
        let mut due: [Vec<f64>; 2] = [anything(1), anything(2)];
        let mut found = due.clone();
        let mut later = vec![f64::NAN; temperature.len()];
        let mut due_later = later.clone();
        let [east, north] = &mut due;
        domain.gradients(&temperature, east, north);
        domain.advance(30_000.0, &temperature, (east, north), &mut due_later);

        let mut kept: Vec<Vec<u64>> = Vec::new();
        let place = |words: &[u64]| words.as_ptr().expose_provenance() as Address;
        let put = |bytes: Vec<u8>| {
            let word = |bytes: &[u8]| {
                let mut word = [0; 8];
                word[..bytes.len()].copy_from_slice(bytes);
                u64::from_ne_bytes(word)
            };
            kept.push(bytes.chunks(8).map(word).collect());
            Ok(place(&kept[kept.len() - 1]))
        };
        let array = |values: &mut Vec<f64>| values.as_mut_ptr().expose_provenance() as Address;
        let [east, north] = &mut found;
        let gradient = [array(east), array(north)];
        let (sea, lists) = Sea::new(&domain, &Parts::new(&domain), gradient, put).unwrap();
        let levels = [array(&mut temperature), array(&mut later)];
        for (name, lists, seconds) in
            [("gradients", lists.triangles, 0.0), ("advance", lists.nodes, 30_000.0)]
        {
            for items in lists {
                let (sea, blocks, threads) = sea.sweep(items, levels, seconds);
                // SAFETY: all arrays live and have the sizes of the domain.
                unsafe { kernels.launch(name, blocks, threads, &sea) };
            }
        }
        let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert!(found.iter().zip(&due).all(|(found, due)| bits(found) == bits(due)), "gradients");
        assert!(bits(&later) == bits(&due_later), "temperature");
        assert!(later[..domain.owned_nodes.len() * layers].iter().all(|value| value.is_finite()));
    }
}

#[test]
fn results_on_simulated_devices_are_equal_and_ordered() {
    let Prepared { case, potential } = prepared();
    let (nodes, steps) = (case.mesh.positions.len(), 3);
    let one = Partition::block(nodes, 1).unwrap();
    let due = simulate(prepared(), &one, &initial(case), steps);
    let partition = Partition::metis(&case.mesh.topology.vertex_graph().unwrap(), 2).unwrap();
    for (seed, devices) in [(1, 2), (2, 1)] {
        let live = World::live(seed, &Options { devices, ..Options::default() }).unwrap();
        let results = ranks::as_threads(2, |comm| -> Result<_, CommandError> {
            let domains = case.mesh.topology.domains_by_vertex(&partition, comm.rank())?;
            let domain = Arc::new(Domain::new(case, &domains, potential));
            let device = live.world().device(comm.rank() as u32 % devices).map_err(Error::from)?;
            let stream = device.stream(Priority::Normal).map_err(Error::from)?;
            let address = |field: &halocline::Field| field.base().addr().get() as Address;
            let make = |_: &Stream, fields: &Fields| {
                let parts = Parts::new(&domain);
                // A rank that owns no mixed triangle has nodes that wait for them.
                let boundary = parts.triangles[1].len().max(parts.nodes[1].len());
                assert!(boundary > 0 && !parts.triangles[0].is_empty() && !parts.nodes[0].is_empty());
                Ok(Simulated {
                    world: live.world().clone(),
                    domain: Arc::clone(&domain),
                    parts,
                    temperatures: [0, 1].map(|at: usize| address(&fields.temperatures[at])),
                    gradient: [0, 1].map(|at: usize| address(&fields.gradient[at])),
                    nodes: domains.vertices().cells().len(),
                })
            };
            let place = (case, &domains, &*domain);
            let outcome = simulate_on(comm, place, steps as u32, stream, make, || {})?;
            let all = gather(comm, &domain.owned_nodes, &outcome.temperature, case.layers())?;
            Ok(all.map(|all| all.read().map(|all| all.to_vec())).transpose()?)
        });
        let found = results.unwrap().swap_remove(0).unwrap();
        let different = found.iter().zip(&due).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
        assert_eq!((different, found.len()), (0, due.len()), "seed {seed}");
        assert!(live.reports().is_empty(), "seed {seed}: {:?}", live.reports());
    }
}
