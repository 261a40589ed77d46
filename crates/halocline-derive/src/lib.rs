//! `#[derive(Element)]`: plain structs as elements of arrays. Use it through the crate `halocline`, which documents it.

use proc_macro::TokenStream;
use proc_macro2::Span;
use quote::{ToTokens, quote};
use syn::{Data, DeriveInput, Error, Field, Type, parse_macro_input, spanned::Spanned};

/// Implements `halocline::Element` for a plain struct: `#[repr(C)]` or `#[repr(transparent)]`, without type parameters, every
/// field an `Element` or an array of them, no padding, 1 to 256 bytes. The compiler refuses every other type.
///
/// Peers compare the name and the fields of the struct, and those of structs in it: fields of different structs are not exchanged
/// with each other.
#[proc_macro_derive(Element)]
pub fn derive_element(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    implement(&input).unwrap_or_else(Error::into_compile_error).into()
}

fn implement(input: &DeriveInput) -> Result<proc_macro2::TokenStream, Error> {
    let fields = fields_of(input)?;
    check_generics(input)?;
    check_representation(input)?;
    let name = &input.ident;
    let record = describe(name, &fields);
    let types: Vec<&Type> = fields.iter().map(|field| &field.ty).collect();
    Ok(quote! {
        const _: () = {
            let fields: usize = 0 #(+ ::core::mem::size_of::<#types>())*;
            let size = ::core::mem::size_of::<#name>();
            ::core::assert!(
                size == fields,
                "the struct has padding, whose bytes are not initialised: order the fields by size, or fill the gaps with fields"
            );
            ::core::assert!(size >= 1 && size <= 256, "an element has 1 to 256 bytes");
            ::core::assert!(::core::mem::align_of::<#name>() <= 64, "an element is aligned to at most 64 bytes");
        };
        const _: () = {
            // The record of a field's type, or the type as it is written if it has none. Refuses types that are no elements.
            const fn record_of<T: ::halocline::Element>(written: &'static str) -> &'static str {
                if T::RECORD.is_empty() { written } else { T::RECORD }
            }
            const __PARTS: &[&str] = &[#(#record),*];
            const __LENGTH: usize = {
                let (mut length, mut part) = (0, 0);
                while part < __PARTS.len() {
                    length += __PARTS[part].len();
                    part += 1;
                }
                length
            };
            const __BYTES: &[u8; __LENGTH] = &{
                let (mut bytes, mut length, mut part) = ([0; __LENGTH], 0, 0);
                while part < __PARTS.len() {
                    let (text, mut at) = (__PARTS[part].as_bytes(), 0);
                    while at < text.len() {
                        bytes[length] = text[at];
                        length += 1;
                        at += 1;
                    }
                    part += 1;
                }
                bytes
            };
            // SAFETY: `record_of` checks that all fields are elements, for which every byte pattern is valid and which have no
            // padding, pointer, destructor or interior mutability. The constant before this one checks that their sizes add up to
            // that of the struct, so that it has no padding, and its size and alignment.
            unsafe impl ::halocline::Element for #name {
                const TYPE: ::halocline::ElementType =
                    ::halocline::ElementType::Opaque(::core::mem::size_of::<#name>() as u16);
                const RECORD: &'static str = match ::core::str::from_utf8(__BYTES) {
                    ::core::result::Result::Ok(record) => record,
                    ::core::result::Result::Err(_) => ::core::panic!("the names of types and fields are UTF-8"),
                };
            }
        };
    })
}

fn fields_of(input: &DeriveInput) -> Result<Vec<&Field>, Error> {
    match &input.data {
        Data::Struct(data) => Ok(data.fields.iter().collect()),
        Data::Enum(_) => Err(Error::new(
            input.ident.span(),
            "an enum is no element of an array: not every byte pattern is one of its values; use an integer",
        )),
        Data::Union(_) => Err(Error::new(
            input.ident.span(),
            "a union is no element of an array: its bytes may be uninitialised; use a struct",
        )),
    }
}

fn check_generics(input: &DeriveInput) -> Result<(), Error> {
    match input.generics.params.is_empty() {
        true => Ok(()),
        false => Err(Error::new(
            input.generics.span(),
            "an element of an array has no type parameters, lifetimes or constants: their layouts cannot be checked here",
        )),
    }
}

fn check_representation(input: &DeriveInput) -> Result<(), Error> {
    let mut is_fixed = false;
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("repr")) {
        attribute.parse_nested_meta(|meta| {
            is_fixed |= meta.path.is_ident("C") || meta.path.is_ident("transparent");
            // The number of `align(8)`.
            if meta.input.peek(syn::token::Paren) {
                let content;
                syn::parenthesized!(content in meta.input);
                content.parse::<proc_macro2::TokenStream>()?;
            }
            Ok(())
        })?;
    }
    match is_fixed {
        true => Ok(()),
        false => Err(Error::new(
            Span::call_site(),
            "an element of an array needs #[repr(C)] or #[repr(transparent)]: otherwise each build may order its fields differently",
        )),
    }
}

/// The parts of the name that peers compare: of the struct, with its fields.
fn describe(name: &syn::Ident, fields: &[&Field]) -> Vec<proc_macro2::TokenStream> {
    let mut parts = vec![];
    for (number, field) in fields.iter().enumerate() {
        let before = if number == 0 { format!("{name} {{ ") } else { ", ".to_owned() };
        let field_name = field.ident.as_ref().map_or_else(|| number.to_string(), ToString::to_string);
        let text = format!("{before}{field_name}: ");
        parts.push(quote!(#text));
        describe_type(&field.ty, &mut parts);
    }
    parts.push(quote!(" }"));
    parts
}

/// Appends the parts that describe a type: an array by that of its values and its length.
fn describe_type(of: &Type, parts: &mut Vec<proc_macro2::TokenStream>) {
    match of {
        Type::Array(array) => {
            parts.push(quote!("["));
            describe_type(&array.elem, parts);
            let length = format!("; {}]", array.len.to_token_stream());
            parts.push(quote!(#length));
        }
        other => {
            let written = other.to_token_stream().to_string();
            parts.push(quote!(record_of::<#other>(#written)));
        }
    }
}
