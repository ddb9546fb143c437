"""What several passes share: rewriting, views, fusion, and questions to the cost model."""
