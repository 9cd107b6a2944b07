"""Queries a stream with SQL, through a temporary view."""

from pyspark.sql import SparkSession
from sample import SCHEMA, fill

spark = SparkSession.builder.getOrCreate()
fill(spark, "shop/orders")

spark.sql("""
    CREATE OR REPLACE TEMPORARY VIEW records USING pravega
    OPTIONS (scope 'shop', stream 'orders', format 'record')
""")
best = spark.sql(f"""
    WITH orders AS (SELECT from_json(cast(value AS string), '{SCHEMA}') AS order FROM records)
    SELECT order.item, sum(order.quantity) AS pieces FROM orders
    WHERE order.item IS NOT NULL GROUP BY order.item ORDER BY pieces DESC, order.item
""")
for row in best.collect():
    print(row.item, row.pieces)
