#![cfg(not(gmp_loom))]
//! Properties of the sources and the documents, read from their text.

mod api_tables;
mod counts;
mod facade;
mod modules;
mod mutant_list;
mod mutants;
mod orderings;
mod prose;
mod text;
mod unwinds;
mod verification;
