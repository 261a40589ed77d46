//! A distributed field as one array: in the memory of one rank, or in a file.

use crate::agree::{agree, same_as_rank_0};
use crate::binding::Parts;
use crate::error::{Error, which_domain};
use crate::field::{Array, Field, element_of, is_element};
use crate::npy;
use crate::pattern::{Kind, Pattern};
use crate::redistribute::Redistribute;
#[cfg(feature = "zarr")]
use crate::zarr;
use halocline_comm::Communicator;
use halocline_device::{Element, file};
use halocline_plan::copy::CellLayout;
use halocline_plan::{
    CellContent, ElementType, Halo, Layout, LayoutError, NamedElement, RegularGrid, UnstructuredDomain,
};
use std::path::{Path, PathBuf};

/// Why fields cannot be gathered.
///
/// ```
/// use halocline::{Communicator, Decomposed, Error, GatherError, RegularGrid};
///
/// let comm = Communicator::single();
/// let pattern = RegularGrid::new((4, 4)).decompose(1)?.pattern(&comm, 1)?;
/// let error = pattern.gather_to::<f64>(&comm, 0, ()).expect_err("no field");
/// assert!(matches!(error, Error::Gather(GatherError::FieldCount { domain: 0, fields: 0 })));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum GatherError {
    /// No rank has a domain, so that there is no field.
    #[error("no rank has a domain of the pattern, and so no field; gather from a pattern with domains")]
    NoField,
    /// A domain without a field, or with several.
    #[error("domain {domain} of this rank has {fields} fields; give one field for each domain of this rank")]
    FieldCount {
        /// The domain.
        domain: u64,
        /// The fields given for it.
        fields: usize,
    },
    /// A field that could be of several domains, or of none.
    #[error("this rank has the domains {domains:?}; {}", which_domain(domains))]
    WhichDomain {
        /// The domains of this rank.
        domains: Vec<u64>,
    },
    /// A field of a domain of another rank.
    #[error(
        "domain {domain} is not on this rank, which has {domains:?}; give fields of this rank's own domains"
    )]
    NotOnRank {
        /// The domain.
        domain: u64,
        /// The domains of this rank.
        domains: Vec<u64>,
    },
    /// Fields whose cells hold different elements, or different numbers of them.
    #[error(
        "field {field} of rank {rank} has {found} for each cell, a field of rank {of} has {first}; give fields with the same \
         elements and extra dimensions"
    )]
    CellsDiffer {
        /// The rank of a field that differs.
        rank: usize,
        /// Which field of that rank, counted in the order given.
        field: usize,
        /// What its cells hold.
        found: Box<CellContent>,
        /// The rank of the field that it was compared with.
        of: usize,
        /// What the cells of that field hold.
        first: Box<CellContent>,
    },
    /// A field has other elements than the caller of [`Pattern::gather_to`] asks for.
    #[error(
        "field {field} has elements of {found}, not {wanted}; call gather_to with that type, or gather_field_to"
    )]
    OtherElements {
        /// Which field, counted in the order given.
        field: usize,
        /// Its elements.
        found: NamedElement,
        /// The elements asked for.
        wanted: NamedElement,
    },
    /// The name of a file does not say its format.
    #[error("{path:?} names no format; save to a name that ends in .npy or .zarr")]
    Format {
        /// The path given.
        path: PathBuf,
    },
    /// This build of the library writes no Zarr.
    #[error(
        "{} is a Zarr array, which this build cannot write; enable the feature `zarr` of the crate halocline, or save to a name that \
         ends in .npy",
        path.display()
    )]
    WithoutZarr {
        /// The path given.
        path: PathBuf,
    },
    /// A Zarr array was to replace something else.
    #[error(
        "{} exists, and its metadata are not those of a Zarr array of version 3; remove it, or save elsewhere",
        path.display()
    )]
    NotAnArray {
        /// The path given.
        path: PathBuf,
    },
}

halocline_plan::debug_as_text!(GatherError);

impl Pattern {
    /// Copies the owned cells of a distributed field into one array on rank `root`; the other ranks get `None`. Collective: blocks until
    /// all ranks have called it. Rank `root` needs memory for the whole field.
    ///
    /// `fields` are this rank's [`Parts`], one for each of its domains ([`Field::on_domain`] where a rank has several). The array is in C
    /// order. For a regular grid its dimensions are those of the grid, then the extra ones of the field (levels, components). For
    /// an unstructured pattern its first dimension is the cells by ascending global id.
    ///
    /// Fails on all ranks if `root` is no rank, if fields do not fit the pattern or each other, or if their elements are no `T`.
    ///
    /// ```
    /// # use halocline::{Array, Communicator, Decomposed, Halo, RegularGrid};
    /// # let comm = Communicator::init()?;
    /// let pattern = RegularGrid::new([6, 4]).pattern(&comm, Halo::uniform(1))?;
    /// let t = Array::<f64>::zeros(&comm, &pattern.domain()?.extents())?;
    /// t.write()?.fill(3.0);
    /// if let Some(all) = pattern.gather_to::<f64>(&comm, 0, &t)? {
    ///     assert_eq!(all.layout().extents(), [6, 4]);
    ///     assert_eq!(all.read()?.iter().sum::<f64>(), 3.0 * 24.0);
    /// }
    /// # Ok::<(), halocline::Error>(())
    /// ```
    pub fn gather_to<T: Element>(
        &self,
        comm: &Communicator,
        root: usize,
        fields: impl Parts,
    ) -> Result<Option<Array<T>>, Error> {
        let comm = &comm.within("gather_to");
        self.gather(comm, root, &fields.parts(), Some(&element_of::<T>()))
            .map(|field| field.map(Array::of_field))
    }

    /// As [`Pattern::gather_to`], for elements whose type is known at run time only. The field is in C order, without gaps.
    pub fn gather_field_to(
        &self,
        comm: &Communicator,
        root: usize,
        fields: impl Parts,
    ) -> Result<Option<Field>, Error> {
        self.gather(&comm.within("gather_to"), root, &fields.parts(), None)
    }

    /// Writes the owned cells of a distributed field to a NumPy file (format version 1.0) if the name ends in `.npy`, or to a Zarr
    /// version 3 array (a directory) if it ends in `.zarr`, which needs the feature `zarr`. Cells are ordered as by
    /// [`Pattern::gather_to`].
    ///
    /// Collective: blocks until the file is complete. Rank 0 gathers and writes it; it replaces an older file as a whole, so that an
    /// error leaves the older file as it was. All ranks give the same path.
    ///
    /// Fails on all ranks as [`Pattern::gather_to`] does, with [`Error::Differs`] if ranks give different paths, and with
    /// [`Error::FileElement`] if the format lacks the element type, or with [`GatherError::WithoutZarr`] without that feature. On rank 0 it fails with [`GatherError::NotAnArray`] if something else
    /// than an array of Zarr is there, and with [`Error::Save`] if the file cannot be written; the others get [`Error::Elsewhere`] then.
    ///
    /// ```
    /// use halocline::{Array, Communicator, Decomposed, RegularGrid};
    ///
    /// let comm = Communicator::init()?;
    /// let pattern = RegularGrid::new((6, 4)).pattern(&comm, 1)?;
    /// let t = Array::<f64>::zeros(&comm, &pattern.domain()?.extents())?;
    /// # let file = std::env::temp_dir().join(format!("halocline-save-{}.npy", std::process::id()));
    /// pattern.save(&comm, &file, &t)?; // t.npy
    /// # assert!(std::fs::read(&file).is_ok_and(|bytes| bytes.starts_with(b"\x93NUMPY")));
    /// # std::fs::remove_file(&file).expect("the file was written");
    /// # Ok::<(), halocline::Error>(())
    /// ```
    pub fn save(&self, comm: &Communicator, path: impl AsRef<Path>, fields: impl Parts) -> Result<(), Error> {
        let fields = &fields.parts()[..];
        let (comm, path) = (&comm.within("save"), path.as_ref());
        let of_rank_0 = comm.broadcast(0, path.as_os_str().as_encoded_bytes().to_vec())?;
        let is_same = of_rank_0 == path.as_os_str().as_encoded_bytes();
        agree(
            comm,
            if is_same { check_file(path, fields, cfg!(feature = "zarr")) } else { Err(other_path(comm)) },
        )?;
        let all = self.gather(comm, 0, fields, None)?;
        agree(comm, all.map_or(Ok(()), |all| write(path, &all)))
    }

    fn gather(
        &self,
        comm: &Communicator,
        root: usize,
        fields: &[&Field],
        wanted: Option<&NamedElement>,
    ) -> Result<Option<Field>, Error> {
        let same_root = same_as_rank_0(comm, &[root as u64])?;
        let checked = check(comm, root, fields, wanted).and_then(|()| self.check_fields(fields));
        let differs = |_| Error::Differs { rank: comm.rank(), what: "root" };
        agree(comm, checked.and_then(|()| same_root.map_err(differs)))?;
        let redistribute = self.to_one_domain(comm, root)?;
        let cell = cell_of_all(comm, self.axes(), fields)?;
        // The ranks may have asked for different types.
        agree(comm, check_elements(0, &cell, wanted))?;
        let whole = agree(comm, redistribute.whole(comm, root, &cell))?;
        redistribute.moves.bind(comm, fields, whole.iter().collect::<Vec<_>>())?.exchange()?.wait()?;
        Ok(whole)
    }

    /// All cells to one domain on `root`.
    fn to_one_domain(&self, comm: &Communicator, root: usize) -> Result<ToOne, Error> {
        match self.kind() {
            Kind::Regular(grid) => {
                let from = &grid.decomposition;
                let extents = from.extents().to_vec();
                let whole = vec![(root, vec![0; extents.len()], extents.clone())];
                let to = agree(comm, RegularGrid::new(&extents[..]).decompose_boxes(whole, comm.size()))?;
                let moves = Redistribute::regular(comm, (from, &grid.around), (&to, &Halo::uniform(0)))?;
                Ok(ToOne { moves, extents })
            }
            Kind::Unstructured(domains) => {
                let owned: Vec<u8> =
                    domains.iter().flat_map(UnstructuredDomain::owned).flat_map(u64::to_le_bytes).collect();
                let parts = comm.sparse_exchange(vec![(root, owned)])?;
                let ids =
                    parts.iter().flat_map(|(_, part)| part.as_chunks().0).copied().map(u64::from_le_bytes);
                let mut ids: Vec<u64> = ids.collect();
                ids.sort_unstable();
                let extents = vec![ids.len()];
                let whole = (comm.rank() == root).then(|| UnstructuredDomain::new(0, ids, Vec::new()));
                let moves = Redistribute::unstructured(comm, domains, whole.as_slice())?;
                Ok(ToOne { moves, extents })
            }
            Kind::Redistribution => Err(Error::OfRedistribution { what: "gathered" }),
        }
    }

    /// Checks that each domain has one field, and that each fits. The bind of the redistribution would name domains of its sides.
    fn check_fields(&self, fields: &[&Field]) -> Result<(), Error> {
        if matches!(self.kind(), Kind::Redistribution) {
            return Err(Error::OfRedistribution { what: "gathered" });
        }
        fields.iter().enumerate().try_for_each(|(at, field)| {
            let refused = |error| Error::GatheredField { field: at, error: Box::new(error) };
            self.check_field(field).map_err(refused)
        })?;
        self.plan().domains.iter().try_for_each(|&(domain, _)| {
            match fields.iter().filter(|field| field.domain.unwrap_or(domain) == domain).count() {
                1 => Ok(()),
                fields => Err(GatherError::FieldCount { domain, fields }.into()),
            }
        })
    }

    fn check_field(&self, field: &Field) -> Result<(), Error> {
        let domains = &self.plan().domains;
        let shape = match (field.domain, &domains[..]) {
            (Some(number), _) => self.plan().domain(number),
            (None, [(_, shape)]) => Some(shape),
            (None, _) => None,
        };
        let Some(shape) = shape else {
            let here: Vec<u64> = domains.iter().map(|(number, _)| *number).collect();
            return Err(Error::from(match field.domain {
                Some(domain) => GatherError::NotOnRank { domain, domains: here },
                None => GatherError::WhichDomain { domains: here },
            }));
        };
        CellLayout::new(&field.layout, shape).map(drop).map_err(Error::from)
    }

    /// Axes of its domains.
    fn axes(&self) -> usize {
        match self.kind() {
            Kind::Regular(grid) => grid.decomposition.extents().len(),
            Kind::Unstructured(_) | Kind::Redistribution => 1,
        }
    }
}

/// The redistribution of all cells to one domain, and the extents of that domain on the rank that has it.
struct ToOne {
    moves: Redistribute,
    extents: Vec<usize>,
}

impl ToOne {
    /// The array for all cells, on `root`.
    fn whole(&self, comm: &Communicator, root: usize, cell: &Layout) -> Result<Option<Field>, Error> {
        if comm.rank() != root {
            return Ok(None);
        }
        let extents = [&self.extents[..], cell.extents()].concat();
        let name = cell.named_element().name;
        let layout = Layout::c_order(cell.element(), &extents)?.named(name.as_deref().unwrap_or_default());
        Field::allocate(comm, layout).map(Some)
    }
}

fn other_path(comm: &Communicator) -> Error {
    Error::Differs { rank: comm.rank(), what: "path" }
}

/// Checks that the name says a format that this build can write, and that the format has the elements of the fields.
fn check_file(path: &Path, fields: &[&Field], with_zarr: bool) -> Result<(), Error> {
    match path.extension() {
        Some(ending) if ending == "npy" => Ok(()),
        Some(ending) if ending == "zarr" && !with_zarr => {
            Err(GatherError::WithoutZarr { path: path.to_owned() }.into())
        }
        Some(ending) if ending == "zarr" => {
            let is_not_of_zarr = |element: &NamedElement| {
                matches!(element.element, ElementType::Bf16 | ElementType::Opaque(_))
            };
            let mut elements = fields.iter().map(|field| field.layout().named_element());
            elements.find(is_not_of_zarr).map_or(Ok(()), |element| {
                Err(Error::FileElement { format: "Zarr", element, instead: ".npy" })
            })
        }
        _ => Err(GatherError::Format { path: path.to_owned() }.into()),
    }
}

fn write(path: &Path, all: &Field) -> Result<(), Error> {
    let bytes = all.layout().span().len();
    let bytes = Array::<u8>::of_field(all.view(all.base(), Layout::c_order(ElementType::U8, &[bytes])?)?);
    let (element, extents) = (all.layout().named_element(), all.layout().extents());
    let written = match path.extension() {
        #[cfg(feature = "zarr")]
        Some(ending) if ending == "zarr" => {
            if !zarr::may_replace(path) {
                return Err(GatherError::NotAnArray { path: path.to_owned() }.into());
            }
            zarr::Whole { element: element.element, extents, bytes: &bytes.read()? }.save(path)
        }
        _ => file::replace(path, &[&npy::head(&element, extents), &bytes.read()?]),
    };
    written.map_err(|error| Error::Save { path: path.to_owned(), reason: error.to_string() })
}

fn check(
    comm: &Communicator,
    root: usize,
    fields: &[&Field],
    wanted: Option<&NamedElement>,
) -> Result<(), Error> {
    if root >= comm.size() {
        return Err(halocline_comm::CommError::NoSuchRank { rank: root, size: comm.size() }.into());
    }
    let mut fields = fields.iter().enumerate();
    fields.try_for_each(|(number, field)| check_elements(number, field.layout(), wanted))
}

fn check_elements(field: usize, layout: &Layout, wanted: Option<&NamedElement>) -> Result<(), Error> {
    let found = layout.named_element();
    match wanted {
        Some(wanted) if !is_element(&found, wanted) => {
            Err(GatherError::OtherElements { field, found, wanted: wanted.clone() }.into())
        }
        _ => Ok(()),
    }
}

/// What each cell of the field holds, the same in all fields of all ranks. A rank without a domain has no field to ask.
fn cell_of_all(comm: &Communicator, axes: usize, fields: &[&Field]) -> Result<Layout, Error> {
    let mine = agree(comm, cell_of_rank(comm.rank(), axes, fields))?;
    let all = comm.all_gather(&mine.as_ref().map_or(Vec::new(), encode))?;
    let cells = all.iter().enumerate().filter_map(|(rank, message)| Some((rank, decode(message)?)));
    let cells: Vec<(usize, CellContent)> = cells.collect();
    let named = cells.iter().find(|(_, cell)| cell.element.name.is_some());
    let (of, first) = named.or(cells.first()).ok_or(GatherError::NoField)?;
    for (rank, cell) in &cells {
        check_same((*rank, 0), cell, (*of, first))?;
    }
    let CellContent { element, extra, .. } = first;
    Ok(Layout::c_order(element.element, extra)?.named(element.name.as_deref().unwrap_or_default()))
}

/// What each cell of this rank's fields holds, with a name if one of them has it; `None` without a field.
fn cell_of_rank(rank: usize, axes: usize, fields: &[&Field]) -> Result<Option<CellContent>, Error> {
    let cell_of = |field: &&Field| {
        let layout = field.layout();
        let extra = layout.extra(&layout.axes(axes)?);
        let extra: Vec<usize> = extra.into_iter().map(|dim| layout.extents()[dim]).collect();
        Ok(CellContent { element: layout.named_element(), count: extra.iter().product(), extra })
    };
    let cells = fields.iter().map(cell_of).collect::<Result<Vec<_>, LayoutError>>()?;
    let named = cells.iter().find(|cell| cell.element.name.is_some());
    let Some(first) = named.or(cells.first()) else { return Ok(None) };
    for (number, cell) in cells.iter().enumerate() {
        check_same((rank, number), cell, (rank, first))?;
    }
    Ok(Some(first.clone()))
}

/// Compares what a cell holds in a field of rank `rank` with a field of rank `of`.
fn check_same(
    (rank, field): (usize, usize),
    cell: &CellContent,
    (of, first): (usize, &CellContent),
) -> Result<(), GatherError> {
    // As in a bind, dimensions of extent 1 do not count.
    let dimensions =
        |cell: &CellContent| cell.extra.iter().copied().filter(|extent| *extent != 1).collect::<Vec<_>>();
    if cell.element.fits(&first.element) && dimensions(cell) == dimensions(first) {
        return Ok(());
    }
    let (found, first) = (Box::new(cell.clone()), Box::new(first.clone()));
    Err(GatherError::CellsDiffer { rank, field, found, of, first })
}

fn encode(cell: &CellContent) -> Vec<u8> {
    let name = cell.element.name.as_deref().unwrap_or_default();
    let numbers = std::iter::once(u64::from(cell.element.element.code()));
    let numbers = numbers.chain(cell.extra.iter().map(|&extent| extent as u64));
    let mut message = (name.len() as u64).to_le_bytes().to_vec();
    message.extend(name.bytes());
    message.extend(numbers.flat_map(u64::to_le_bytes));
    message
}

/// What [`encode`] has written; `None` for the empty message of a rank without a field.
fn decode(message: &[u8]) -> Option<CellContent> {
    let (length, rest) = message.split_first_chunk()?;
    let (name, numbers) = rest.split_at_checked(u64::from_le_bytes(*length) as usize)?;
    let (element, extra) = numbers.as_chunks().0.split_first()?;
    let element = ElementType::from_code(u64::from_le_bytes(*element).try_into().ok()?)?;
    let name = Some(std::str::from_utf8(name).ok()?).filter(|name| !name.is_empty()).map(Into::into);
    let extra: Vec<usize> = extra.iter().map(|&extent| u64::from_le_bytes(extent) as usize).collect();
    Some(CellContent { element: NamedElement { element, name }, count: extra.iter().product(), extra })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_zarr_says_how_to_get_it() {
        let refused = |path: &str, with_zarr| check_file(Path::new(path), &[], with_zarr);
        let error = refused("t.zarr", false).expect_err("no Zarr");
        assert!(
            matches!(&error, Error::Gather(GatherError::WithoutZarr { path }) if path.ends_with("t.zarr"))
        );
        assert!(error.to_string().contains("enable the feature `zarr`"), "{error}");
        for (path, with_zarr) in [("t.zarr", true), ("t.npy", false)] {
            refused(path, with_zarr).expect("a format of this build");
        }
    }
}
